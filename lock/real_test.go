package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// onReal is a locker on a real server.
func onReal(t *testing.T, c redis.UniversalClient, options ...Option) *Locker {
	t.Helper()
	k, err := New(c, options...)
	must(t, err)
	t.Cleanup(func() { must(t, k.Close()) })
	return k
}

// turns makes lockers take turns, and fails if they take longer than they may.
func turns(t *testing.T, name string, each int, within time.Duration, all ...*Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var wg sync.WaitGroup
	inside := make(chan struct{}, 1)
	for _, k := range all {
		wg.Go(func() {
			for range each {
				err := k.Do(ctx, name, func(context.Context, *Lease) error {
					select {
					case inside <- struct{}{}:
						<-inside
						return nil
					default:
						return errors.New("two are inside")
					}
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestT15WaitersGoOnWhateverBefallsTheirInboxes(t *testing.T) {
	s := redistest.RealOnly(t)
	admin := s.Client(t)
	ctx := t.Context()
	must(t, admin.Do(ctx, "acl", "setuser", "mute", "on", ">p", "~*", "+@all", "resetchannels").Err())
	mute := func(o *redis.Options) { o.Username, o.Password = "mute", "p" }
	t.Run("their connection is killed", func(t *testing.T) {
		stop := make(chan struct{})
		var killer sync.WaitGroup
		killer.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					_ = admin.Do(ctx, "client", "kill", "type", "pubsub").Err()
				}
			}
		})
		turns(t, "killed", 100, 30*time.Second, onReal(t, s.Client(t)), onReal(t, s.Client(t)), onReal(t, s.Client(t)))
		close(stop)
		killer.Wait()
	})
	t.Run("they may not be opened", func(t *testing.T) {
		turns(t, "denied", 3, 30*time.Second, onReal(t, s.Client(t, mute)), onReal(t, s.Client(t, mute)))
	})
	t.Run("nobody may write to them", func(t *testing.T) {
		holder, waiter := onReal(t, s.Client(t, mute)), onReal(t, s.Client(t))
		l := lock(t, holder, "silent")
		got := make(chan *Lease)
		go func() { got <- lock(t, waiter, "silent") }()
		inQueue(t, s, "silent", 1)
		began := time.Now()
		must(t, l.Unlock(ctx))
		must(t, (<-got).Unlock(ctx))
		if took := time.Since(began); took > 1300*time.Millisecond {
			t.Errorf("the waiter had it after %v", took)
		}
	})
}

func TestT18AFullServerRefusesALockAndKeepsThoseThatAreHeld(t *testing.T) {
	s := redistest.RealOnly(t, "--maxmemory-policy", "noeviction")
	c := s.Client(t)
	k := onReal(t, c)
	ctx := t.Context()
	held, given := lock(t, k, "held", WithLease(time.Second)), lock(t, k, "given")
	must(t, given.Unlock(ctx))
	must(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := k.TryLock(ctx, "another")
	is(t, "another", err, ErrUnavailable)
	names(t, err, "OOM")
	_, err = k.TryLock(ctx, "held")
	is(t, "the one that is held", err, ErrBusy)
	got := make(chan *Lease)
	go func() { got <- lock(t, onReal(t, s.Client(t)), "held") }()
	inQueue(t, s, "held", 1)
	<-time.After(2 * time.Second) // of renewals
	must(t, held.Refresh(ctx))
	must(t, held.Unlock(ctx))
	must(t, (<-got).Unlock(ctx))
	must(t, c.ConfigSet(ctx, "maxmemory", "0").Err())
	must(t, lock(t, k, "another").Unlock(ctx))
}

func TestT19WhatTheServerRefusesIsNeverCalledBusy(t *testing.T) {
	s := redistest.RealOnly(t)
	c := s.Client(t)
	k := onReal(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }))
	ctx := t.Context()
	lock(t, k, "warm").Unlock(ctx)
	try := func(situation, text string) {
		t.Helper()
		l, err := k.TryLock(ctx, situation)
		is(t, situation, err, ErrUnavailable)
		names(t, err, text)
		equal(t, situation+": lease", l, nil)
	}
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	try("no replicas", "NOREPLICAS")
	must(t, c.ConfigSet(ctx, "min-replicas-to-write", "0").Err())

	must(t, c.Do(ctx, "client", "pause", "700", "all").Err())
	try("paused", "budget")
	<-time.After(800 * time.Millisecond)

	must(t, c.ConfigSet(ctx, "busy-reply-threshold", "10").Err())
	stuck := make(chan error)
	go func() {
		stuck <- s.Client(t, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Minute }).Eval(ctx, "while true do end", nil).Err()
	}()
	redistest.Eventually(t, 5*time.Second, func() bool {
		return redis.HasErrorPrefix(c.Ping(ctx).Err(), "BUSY")
	}, "the script is stuck")
	try("busy with a script", "BUSY")
	must(t, c.ScriptKill(ctx).Err())
	<-stuck

	must(t, c.Do(ctx, "acl", "setuser", "default", "nopass", "-evalsha", "-eval").Err())
	try("no right", "NOPERM")
	must(t, c.Do(ctx, "acl", "setuser", "default", "+@all").Err())
	must(t, lock(t, k, "paused").Unlock(ctx))
}

func TestT19AReleaseDuringAPauseIsTriedAgain(t *testing.T) {
	s := redistest.RealOnly(t)
	c := s.Client(t)
	k := onReal(t, s.Client(t))
	l := lock(t, k, "x", WithLease(10*time.Second))
	must(t, c.Do(t.Context(), "client", "pause", "1500", "write").Err())
	is(t, "unlock", l.Unlock(t.Context()), ErrUnavailable)
	redistest.Eventually(t, 3*time.Second, func() bool {
		state, err := k.Inspect(t.Context(), "x")
		return err == nil && !state.Held
	}, "the lock is free")
}

func TestT22ClientsThatReadFromReplicasTakeTheirLocksFromMasters(t *testing.T) {
	cluster := redistest.Cluster(t)
	for situation, edit := range map[string]func(*redis.ClusterOptions){
		"masters only": func(*redis.ClusterOptions) {},
		"read only":    func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"by latency":   func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		"randomly":     func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		a, b := onReal(t, cluster.Client(t, edit)), onReal(t, cluster.Client(t, edit))
		for i := range 6 {
			turns(t, situation+strconv.Itoa(i), 4, 20*time.Second, a, b)
		}
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	k := onReal(t, cluster.Client(t))
	set, err := k.LockAll(t.Context(), names)
	must(t, err)
	for _, name := range names {
		_, err := k.TryLock(t.Context(), name)
		is(t, name, err, ErrBusy)
	}
	must(t, set.Unlock(t.Context()))
}

func TestT21ALockThatMovesToAnotherMasterStaysHeld(t *testing.T) {
	cluster := redistest.Cluster(t)
	a, b := onReal(t, cluster.Client(t)), onReal(t, cluster.Client(t))
	l := lock(t, a, "x", WithLease(2*time.Second))
	got := make(chan *Lease)
	go func() { got <- lock(t, b, "x") }()
	redistest.Eventually(t, 5*time.Second, func() bool {
		state, err := b.Inspect(t.Context(), "x")
		return err == nil && state.Waiting == 1
	}, "somebody waits")
	at, err := cluster.NodeFor(t.Context(), "lk:x")
	must(t, err)
	for range 3 {
		at = moveSlot(t, cluster, "lk:x", at)
		must(t, l.Refresh(t.Context()))
	}
	<-time.After(2500 * time.Millisecond) // of renewals
	must(t, l.Context().Err())
	must(t, l.Unlock(t.Context()))
	next := <-got
	if next.Fence() <= l.Fence() {
		t.Errorf("fences: %d, then %d", l.Fence(), next.Fence())
	}
	must(t, next.Unlock(t.Context()))
}

// moveSlot hands the slot of key to the next master, with the key, while it is in use.
func moveSlot(t *testing.T, cluster *redistest.Cluster3, key string, from int) (to int) {
	t.Helper()
	ctx := t.Context()
	to = (from + 1) % 3
	source, target := cluster.Node(from).Client(t), cluster.Node(to).Client(t)
	slot := source.ClusterKeySlot(ctx, key).Val()
	ids := map[*redis.Client]string{source: source.ClusterMyID(ctx).Val(), target: target.ClusterMyID(ctx).Val()}
	must(t, target.Do(ctx, "cluster", "setslot", slot, "importing", ids[source]).Err())
	must(t, source.Do(ctx, "cluster", "setslot", slot, "migrating", ids[target]).Err())
	host, port, _ := strings.Cut(cluster.Node(to).Addr(), ":")
	must(t, source.Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
	for _, c := range []*redis.Client{target, source, cluster.Node(3 - from - to).Client(t)} {
		must(t, c.Do(ctx, "cluster", "setslot", slot, "node", ids[target]).Err())
	}
	return to
}
