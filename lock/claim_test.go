package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

const (
	length = 3 * time.Second
	safety = length / 100 // by which a lease ends earlier for its holder than in Redis
)

var extend = redis.NewScript(`
	if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'lost'} end
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return {'held'}`)

// linked is a link to a server in a bubble.
type linked struct {
	*redistest.BubbleServer
	link *link.Link
}

// inBubble runs f in a bubble, with a server in it.
func inBubble(t *testing.T, f func(t *testing.T, n linked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.Bubble(t)
		l, err := link.Open(b.Client(t))
		must(t, err)
		t.Cleanup(l.Close)
		f(t, linked{b, l})
	})
}

// take gets the lease on key, which is the token, as a script of package rebuild would.
func (n linked) take(t *testing.T, key string) *Claim {
	t.Helper()
	sent := n.link.Clock.Now()
	token := NewToken()
	must(t, n.link.Client.Set(t.Context(), key, token, length).Err())
	renew := link.ScriptCall{Script: extend, Key: key, Args: []any{token, length.Milliseconds()}}
	return Hold(n.link, token, 42, link.Renewal{Call: renew, Sent: sent, Lease: length, Every: length / 3})
}

// ended fails unless the lease ended because of why.
func ended(t *testing.T, l *Claim, why error) {
	t.Helper()
	if l.Context().Err() == nil {
		t.Fatalf("the lease has not ended, want %v", why)
	}
	equal(t, "cause", reasonOf(context.Cause(l.Context())), reasonOf(why))
}

// reasonOf is why a lease was lost, or the error that says that it was not.
func reasonOf(err error) any {
	if lost, ok := errors.AsType[*LostError](err); ok {
		return lost.Reason
	}
	return err
}

func TestALeaseLivesUntilItsHolderEndsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, n linked) {
		l := n.take(t, "k")
		equal(t, "fencing number", l.Start, 42)
		equal(t, "token", l.Token, n.link.Client.Get(t.Context(), "k").Val())
		time.Sleep(10 * length)
		must(t, l.Context().Err())
		equal(t, "in Redis", n.Mini().Exists("k"), true)
		l.End()
		ended(t, l, ErrReleased)
		time.Sleep(2 * length)
		equal(t, "renewed after its end", n.Mini().Exists("k"), false)
	})
}

func TestALeaseThatCannotBeRenewedExpires(t *testing.T) {
	inBubble(t, func(t *testing.T, n linked) {
		l := n.take(t, "k")
		n.Freeze()
		began := time.Now()
		<-l.Context().Done()
		equal(t, "lived for", time.Since(began), length-safety)
		ended(t, l, &LostError{Reason: Expired})
		if left := n.Mini().TTL("k"); left <= 0 {
			t.Error("it outlived the lease in Redis")
		}
		n.Thaw()
	})
}

func TestALeaseThatIsRevokedIsTaken(t *testing.T) {
	for situation, revoke := range map[string]func(n linked){
		"deleted":        func(n linked) { n.Mini().Del("k") },
		"held by others": func(n linked) { must(t, n.Mini().Set("k", "another")) },
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n linked) {
				l := n.take(t, "k")
				revoke(n)
				<-l.Context().Done()
				ended(t, l, &LostError{Reason: Taken})
			})
		})
	}
}

func TestTheFirstCauseStays(t *testing.T) {
	inBubble(t, func(t *testing.T, n linked) {
		released := n.take(t, "released")
		released.End()
		taken := n.take(t, "taken")
		n.Mini().Del("released")
		n.Mini().Del("taken")
		<-taken.Context().Done()
		taken.End()
		time.Sleep(5 * length)
		ended(t, released, ErrReleased)
		ended(t, taken, &LostError{Reason: Taken})
	})
}

func TestALeaseMayBeEndedTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, n linked) {
		l := n.take(t, "k")
		var enders sync.WaitGroup
		for range 8 {
			enders.Go(l.End)
		}
		enders.Wait()
		l.End()
		ended(t, l, ErrReleased)
	})
}

func TestTheDeadlineMovesWithEachRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, n linked) {
		l := n.take(t, "k")
		equal(t, "at first", time.Until(l.Deadline()), length-safety)
		time.Sleep(length/3 - time.Millisecond)
		equal(t, "before the first renewal", time.Until(l.Deadline()), length-safety-length/3+time.Millisecond)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		equal(t, "after it", time.Until(l.Deadline()), length-safety)
		l.End()
		time.Sleep(length)
		if time.Until(l.Deadline()) > 0 {
			t.Error("a lease that was ended has time left")
		}
	})
}

func TestTheDeadlineCountsFromTheRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, n linked) {
		sent := n.link.Clock.Now()
		time.Sleep(length / 4) // the answer took its time
		call := link.ScriptCall{Script: extend, Key: "k", Args: []any{"", 0}}
		l := Hold(n.link, NewToken(), 1, link.Renewal{Call: call, Sent: sent, Lease: length, Every: length / 3})
		equal(t, "left", time.Until(l.Deadline()), length-safety-length/4)
		l.End()
	})
}

func TestManyLeasesEndEachForItself(t *testing.T) {
	inBubble(t, func(t *testing.T, n linked) {
		var all []*Claim
		for i := range 100 {
			all = append(all, n.take(t, fmt.Sprint("k", i)))
		}
		for i := range all {
			if i%2 == 0 {
				n.Mini().Del(fmt.Sprint("k", i))
			}
		}
		time.Sleep(2 * length)
		for i, l := range all {
			if i%2 == 0 {
				ended(t, l, &LostError{Reason: Taken})
			} else {
				must(t, l.Context().Err())
			}
			l.End()
		}
	})
}
