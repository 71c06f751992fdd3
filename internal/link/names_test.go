package link

import (
	"reflect"
	"sync"
	"testing"
)

var (
	ofInt    = reflect.TypeFor[int]()
	ofString = reflect.TypeFor[string]()
)

func TestOneNameWithTwoTypesIsRefused(t *testing.T) {
	l := open(t, client(t))
	release, err := l.Claim("user", ofInt)
	must(t, err)
	defer release()
	_, err = l.Claim("user", ofString)
	saying(t, err, `"user" already holds values of type int on this client, not string`)
}

func TestOneNameWithOneTypeIsForMany(t *testing.T) {
	l := open(t, client(t))
	for range 2 {
		release, err := l.Claim("user", ofInt)
		must(t, err)
		defer release()
	}
}

func TestANameIsFreeWhenItsLastUserHasReleasedIt(t *testing.T) {
	l := open(t, client(t))
	first, err := l.Claim("user", ofInt)
	must(t, err)
	second, err := l.Claim("user", ofInt)
	must(t, err)

	first()
	first() // a second time counts for nothing
	_, err = l.Claim("user", ofString)
	saying(t, err, "already holds values of type int")

	second()
	third, err := l.Claim("user", ofString)
	must(t, err)
	third()
}

func TestARefusedClaimTakesNothing(t *testing.T) {
	l := open(t, client(t))
	release, err := l.Claim("user", ofInt)
	must(t, err)
	if release, err := l.Claim("user", ofString); err == nil || release != nil {
		t.Errorf("release %t, error %v", release != nil, err)
	}
	release()
	equal(t, "names taken", len(l.names.taken), 0)
}

func TestNamesAreOfOneClient(t *testing.T) {
	for _, typ := range []reflect.Type{ofInt, ofString} {
		release, err := open(t, client(t)).Claim("user", typ)
		must(t, err)
		defer release()
	}
}

func TestNamesAreClaimedRightByManyAtOnce(t *testing.T) {
	l := open(t, client(t))
	var users sync.WaitGroup
	for i := range 16 {
		typ := []reflect.Type{ofInt, ofString}[i%2]
		users.Go(func() {
			for range 100 {
				if release, err := l.Claim("user", typ); err == nil {
					release()
				}
			}
		})
	}
	users.Wait()
	equal(t, "names taken", len(l.names.taken), 0)
}
