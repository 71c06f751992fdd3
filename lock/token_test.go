package lock

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
)

func TestATokenIsARandomUUIDInBase64URL(t *testing.T) {
	for range 1000 {
		token := NewToken()
		equal(t, "length", len(token), TokenSize)
		if strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatalf("%q is not base64url", token)
		}
		raw, err := base64.RawURLEncoding.DecodeString(token)
		must(t, err)
		id, err := uuid.FromBytes(raw)
		must(t, err)
		equal(t, "version", id.Version(), 4)
	}
}

func TestNoTokenComesTwice(t *testing.T) {
	const takers, each = 8, 5000
	var seen sync.Map
	var all sync.WaitGroup
	for range takers {
		all.Go(func() {
			for range each {
				if _, twice := seen.LoadOrStore(NewToken(), true); twice {
					t.Error("a token came twice")
				}
			}
		})
	}
	all.Wait()
}

// A hook that prints commands, as those for tracing do, must not read what is written meanwhile.
func TestAnAttemptIsPrintedAsItsToken(t *testing.T) {
	a := newAttempt()
	equal(t, "printed", fmt.Sprint(a), a.token)
}
