package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// TestT02LockersMakeLinearHistories: what several lockers send for many callers, with answers that are lost on the
// way and leases that are left to end, is legal on the wire. Waiting, renewing and giving up are part of it.
func TestT02LockersMakeLinearHistories(t *testing.T) {
	s := redistest.RealOnly(t)
	r := newRecorder(genuine)
	d := 1200 * time.Millisecond
	if soaks() {
		d = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	var lockers []*Locker
	for i := range 3 {
		c, faults := s.Client(t), redistest.NewFaults(t)
		c.AddHook(r)
		c.AddHook(faults)
		k := onReal(t, c, WithLease(100*time.Millisecond), WithRedisTimeout(100*time.Millisecond))
		lockers = append(lockers, k)
		all.Go(func() { loseAnswers(ctx, faults) })
		for j := range 3 {
			all.Go(func() { useLocks(ctx, k, fmt.Sprint("x", (i+j)%2)) })
		}
	}
	all.Wait()
	for _, k := range lockers {
		must(t, k.Close()) // what runs behind the callers belongs to the history
	}
	redistest.Eventually(t, 10*time.Second, r.ended, "no call goes on")
	outcomes := map[string]int{}
	count(outcomes, r.history())
	t.Log(outcomes)
	if !r.fine(t, time.Minute) {
		t.Error("nobody can tell whether the history is legal")
	}
	for _, want := range []string{"acquire:acquired", "acquire:busy", "acquire:?", "renew:held", "release:released"} {
		if outcomes[want] == 0 {
			t.Errorf("nothing came to %q", want)
		}
	}
}

// loseAnswers loses one now and then.
func loseAnswers(ctx context.Context, faults *redistest.Faults) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		faults.LoseReply(redistest.Any).Times(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// useLocks takes a lock again and again, in all the ways there are, and does what callers do with it.
func useLocks(ctx context.Context, k *Locker, name string) {
	for ctx.Err() == nil {
		var options []LockOption
		if rand.IntN(4) == 0 {
			options = append(options, WithoutRenewal())
		}
		l, err := anyHow(ctx, k, name, options)
		if err != nil {
			continue
		}
		switch rand.IntN(8) {
		case 0:
			_ = l.Refresh(ctx)
		case 1:
			<-time.After(60 * time.Millisecond) // of renewals
		case 2:
			if l.hold.settings.fixed {
				continue // it ends by itself
			}
		}
		_ = l.Unlock(ctx)
	}
}

func anyHow(ctx context.Context, k *Locker, name string, options []LockOption) (*Lease, error) {
	if rand.IntN(3) == 0 {
		return k.TryLock(ctx, name, options...)
	}
	return k.Lock(ctx, name, append(options, WithWait(time.Duration(1+rand.IntN(300))*time.Millisecond))...)
}
