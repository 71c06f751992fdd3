package bench

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/lock"
)

// BenchmarkLock is a lock that nobody else wants, taken and given back.
func BenchmarkLock(b *testing.B) {
	client := redistest.Shared(b).Client(b)
	locks := newLocker(b, client)
	cycle(b, locks, "job") // connections, scripts, the server's clock
	b.ReportAllocs()
	sent := countTrips(client)
	for b.Loop() {
		cycle(b, locks, "job")
	}
	sent.report(b)
}

// BenchmarkTryLockInVain is one that somebody else has.
func BenchmarkTryLockInVain(b *testing.B) {
	server := redistest.Shared(b)
	client := server.Client(b)
	locks := newLocker(b, client)
	cycle(b, locks, "warm-up")
	held, err := newLocker(b, server.Client(b)).Lock(b.Context(), "job")
	must(b, err)
	b.ReportAllocs()
	sent := countTrips(client)
	for b.Loop() {
		if _, err := locks.TryLock(b.Context(), "job"); !errors.Is(err, lock.ErrBusy) {
			b.Fatal(err)
		}
	}
	sent.report(b)
	must(b, held.Unlock(b.Context()))
}

// BenchmarkLockHandoff is a lock that several lockers want all the time, each on a client of its own. One op is from
// one's giving it back to the next one's having it, and the lock held for no time.
func BenchmarkLockHandoff(b *testing.B) {
	for _, crowd := range []int{2, 20} {
		b.Run(strconv.Itoa(crowd)+" lockers", func(b *testing.B) {
			server := redistest.Shared(b)
			next, had := make(chan struct{}), make(chan error, crowd)
			for range crowd {
				locks := newLocker(b, server.Client(b))
				cycle(b, locks, "warm-up")
				go func() { had <- takeTurns(b, locks, next) }()
			}
			pause(500 * time.Millisecond) // all wait, and their inboxes are open
			b.ReportAllocs()
			for b.Loop() {
				next <- struct{}{}
			}
			close(next)
			for range crowd {
				must(b, <-had)
			}
		})
	}
}

// takeTurns takes the lock whenever it can be had, and gives it back when it is told to.
func takeTurns(b *testing.B, locks *lock.Locker, next <-chan struct{}) error {
	for {
		l, err := locks.Lock(b.Context(), "job")
		if err != nil {
			return err
		}
		_, more := <-next
		if err := l.Unlock(b.Context()); err != nil || !more {
			return err
		}
	}
}

// newLocker makes a locker that is closed when the benchmark ends.
func newLocker(b *testing.B, client *redis.Client) *lock.Locker {
	b.Helper()
	locks, err := lock.New(client)
	must(b, err)
	b.Cleanup(func() { must(b, locks.Close()) })
	return locks
}

func cycle(b *testing.B, locks *lock.Locker, name string) {
	l, err := locks.Lock(b.Context(), name)
	must(b, err)
	must(b, l.Unlock(b.Context()))
}
