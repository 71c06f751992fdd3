package rebuild

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// flights are the reads under way: callers that ask for the same key in the same way share
// one. What is handed to singleflight must not panic, end its goroutine or block without
// end: it runs no user's code, and every wait in it is bounded.
type flights struct {
	group singleflight.Group
}

// The kinds of a flight. They are told apart by a prefix, so no key can look like another's.
const (
	flightAny   = "a:"
	flightFresh = "f:"
	flightNext  = "n:" // a Refresh that has not begun
)

// join flies, or waits with those who do. It leaves when ctx ends; the flight goes on.
func (f *flights) join(ctx context.Context, key, kind string, fly func() (Answer, error)) (Answer, error) {
	landed := f.group.DoChan(kind+key, func() (any, error) {
		a, err := fly()
		return a, err
	})
	select {
	case r := <-landed:
		a, _ := r.Val.(Answer)
		return a, r.Err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// forget lets newcomers fly anew.
func (f *flights) forget(key string) {
	f.group.Forget(flightAny + key)
	f.group.Forget(flightFresh + key)
}
