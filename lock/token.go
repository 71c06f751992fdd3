package lock

import (
	"encoding/base64"

	"github.com/google/uuid"
)

// TokenSize is the length of a token's text.
const TokenSize = 22

// NewToken returns a token for one attempt to get a lease: a random UUID in base64url. A
// token is never used for a second attempt, so what arrives late can be told from what
// is current.
func NewToken() string {
	id := uuid.New()
	return base64.RawURLEncoding.EncodeToString(id[:])
}
