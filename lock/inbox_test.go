package lock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// confirmed is that the server has confirmed a subscription.
var confirmed = link.News{Confirmed: true}

// grantText is the message of a grant, as the scripts write it.
func grantText(token string, fence, until int64, key string) string {
	return fmt.Sprintf("%s%013x%011x%s", token, fence, until, key)
}

// TestAGrantOfWhichLittleIsLeftIsAskedFor: a message tells of a lease that began a while ago. Who begins on what is left
// of it must be able to renew it.
func TestAGrantOfWhichLittleIsLeftIsAskedFor(t *testing.T) {
	for left, begins := range map[time.Duration]bool{200 * time.Millisecond: false, time.Second: true} {
		bubble(t, func(t *testing.T, s *server) {
			a, b := s.locker(), s.locker()
			l := lock(t, a, "x")
			got := make(chan *Lease, 1)
			go func() { got <- lock(t, b, "x") }()
			time.Sleep(100 * time.Millisecond)
			s.forge(b, l.Fence()+1, time.Now().Add(left))
			synctest.Wait()
			equal(t, "begins with "+left.String(), len(got) == 1, begins)
			must(t, l.Unlock(t.Context()))
			_ = (<-got).Unlock(t.Context())
		})
	}
}

// forge tells the waiters of k that they were granted what they wait for.
func (s *server) forge(k *Locker, fence int64, until time.Time) {
	k.inbox.mu.Lock()
	var forged []string
	for token := range k.inbox.waiters {
		forged = append(forged, grantText(token, fence, until.UnixMilli(), "lk:x"))
	}
	k.inbox.mu.Unlock()
	for _, text := range forged {
		k.inbox.hear(link.News{Message: text})
	}
}

func TestAGrantedLeaseThatIsNotRenewedIsWholeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.locker(), s.locker()
		l := lock(t, a, "x")
		got := make(chan *Lease)
		go func() { got <- lock(t, b, "x", WithoutRenewal()) }()
		time.Sleep(100 * time.Millisecond)
		must(t, l.Unlock(t.Context()))
		next := <-got
		if left := time.Until(next.Deadline()); left < 9*time.Second {
			t.Errorf("it ends in %v", left)
		}
		must(t, next.Unlock(t.Context()))
	})
}

func TestAWaiterAsksAsSoonAsItsInboxIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.locker(), s.locker()
		l := lock(t, a, "x")
		got := make(chan *Lease)
		go func() { got <- lock(t, b, "x") }()
		time.Sleep(100 * time.Millisecond)
		s.Mini().Del("lk:x")
		began := time.Now()
		b.inbox.hear(confirmed)
		next := <-got
		equal(t, "had after", time.Since(began), 0)
		must(t, next.Unlock(t.Context()))
		is(t, "who had it", l.Unlock(t.Context()), ErrLost)
	})
}

func TestALeaseIsLookedAfterAsSoonAsTheInboxIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		l := lock(t, k, "x")
		time.Sleep(100 * time.Millisecond)
		k.inbox.hear(confirmed)
		s.Mini().Del("lk:x")
		began := time.Now()
		k.inbox.hear(confirmed)
		<-l.Context().Done()
		equal(t, "told after", time.Since(began), 0)
		is(t, "unlock", l.Unlock(t.Context()), ErrLost)
	})
}
