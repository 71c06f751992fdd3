package link

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pauseFirst = 50 * time.Millisecond
	pauseMost  = time.Second
	pauseLong  = 5 * time.Second // after an answer that trying again will hardly change
)

// outage is a time in which attempts fail. It says how long to pause between them, and tells the
// log once that it began, once more if it gets worse, and that it is over.
type outage struct {
	what string // that cannot be received
	log  func(slog.Level, string, error)
	next time.Duration // the pause; doubles from pauseFirst to pauseMost
	told slog.Level    // of the worst that was logged; 0: nothing was
}

// goesOn notes a failed attempt and returns the pause after it. One that does no harm yet is not
// worth a line.
func (o *outage) goesOn(err error, harmless bool) (pause time.Duration) {
	if hopeless(err) {
		o.tell(slog.LevelError, err)
		return pauseLong
	}
	if !harmless {
		o.tell(slog.LevelWarn, err)
	}
	pause = max(o.next, pauseFirst)
	o.next = min(2*pause, pauseMost)
	return pause
}

func (o *outage) tell(level slog.Level, err error) {
	if level > o.told {
		o.told = level
		o.log(level, o.what+" cannot be received", err)
	}
}

// over notes that an attempt has succeeded.
func (o *outage) over() {
	o.next = 0
	if o.told > 0 {
		o.told = 0
		o.log(slog.LevelInfo, o.what+" are received again", nil)
	}
}

// hopeless tells whether an error is the server's last word: a key of another type, a missing
// right or password, a command that it does not know.
func hopeless(err error) bool {
	return slices.ContainsFunc([]string{"WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "unknown command"},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// rest waits for half to all of d, so that nodes that failed together do not come back together.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// waitFor waits for goroutines that have been told to end, or leaves them to the client's own
// timeouts where they are stuck in it.
func waitFor(running *sync.WaitGroup, patience time.Duration) {
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}
