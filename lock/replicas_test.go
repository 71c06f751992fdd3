package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// replicated is a primary, and a replica of it.
func replicated(t *testing.T) (primary, replica *redistest.Server) {
	t.Helper()
	primary = redistest.RealOnly(t)
	return primary, redistest.Replica(t, primary.Addr())
}

// waits counts the times that replicas were asked for.
type waits struct {
	mu   sync.Mutex
	sent []string // the names of commands, pipelines with a + between them
}

func (w *waits) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *waits) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		w.note(c)
		return next(ctx, c)
	}
}

func (w *waits) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.note(cmds...)
		return next(ctx, cmds)
	}
}

func (w *waits) note(cmds ...redis.Cmder) {
	var names []string
	for _, c := range cmds {
		names = append(names, c.Name())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, strings.Join(names, "+"))
}

// takes returns what was sent, and begins anew.
func (w *waits) takes() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.sent, " ")
	w.sent = nil
	return text
}

func TestWithReplicasTheAcquireAndNothingElseWaitsForThem(t *testing.T) {
	primary, replica := replicated(t)
	c, w := primary.Client(t), &waits{}
	c.AddHook(w)
	k := onReal(t, c, WithReplicas(1, time.Second), WithLease(3*time.Second))
	warm := lock(t, k, "warm")
	must(t, errors.Join(warm.Refresh(t.Context()), warm.Unlock(t.Context())))
	w.takes()
	l := lock(t, k, "x")
	equal(t, "the acquire", w.takes(), "evalsha+wait")
	raw := replica.Client(t).Get(t.Context(), "lk:x").Val()
	equal(t, "the replica has it", strings.Contains(raw, l.hold.Token), true)
	must(t, l.Refresh(t.Context()))
	equal(t, "a renewal", w.takes(), "evalsha")
	must(t, l.Unlock(t.Context()))
	equal(t, "the release", w.takes(), "evalsha")
}

func TestALockThatReplicasDoNotConfirmIsGivenBack(t *testing.T) {
	primary, replica := replicated(t)
	k, other := onReal(t, primary.Client(t)), onReal(t, primary.Client(t))
	ctx := t.Context()
	must(t, lock(t, k, "warm").Unlock(ctx))
	must(t, lock(t, k, "warm", WithReplicas(1, time.Second)).Unlock(ctx))
	must(t, replica.Pause())
	defer replica.Resume()
	for situation, take := range map[string]func() (*Lease, error){
		"Lock":    func() (*Lease, error) { return k.Lock(ctx, "x", WithReplicas(1, 200*time.Millisecond)) },
		"TryLock": func() (*Lease, error) { return k.TryLock(ctx, "x", WithReplicas(2, 200*time.Millisecond)) },
	} {
		began := time.Now()
		l, err := take()
		is(t, situation, err, ErrNotReplicated)
		equal(t, situation+": lease", l, nil)
		few, _ := errors.AsType[*NotReplicatedError](err)
		equal(t, situation+": acknowledged by", few.Acked, 0)
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("%s: after %v", situation, took)
		}
		_, err = other.TryLock(ctx, "x") // at once: it was given back before
		must(t, err)
		must(t, onlyLease(t, other).Unlock(ctx))
	}
	must(t, lock(t, k, "x").Unlock(ctx)) // without
}

// onlyLease is the one lease that a locker has.
func onlyLease(t *testing.T, k *Locker) *Lease {
	t.Helper()
	held := k.held()
	equal(t, "leases", len(held), 1)
	return held[0].lease()
}

func TestALockThatWasGrantedIsConfirmedByReplicasToo(t *testing.T) {
	primary, replica := replicated(t)
	c, w := primary.Client(t), &waits{}
	c.AddHook(w)
	a, b := onReal(t, primary.Client(t)), onReal(t, c, WithReplicas(1, 300*time.Millisecond))
	ctx := t.Context()
	l := lock(t, a, "x")
	got := make(chan error)
	ask := func() {
		l, err := b.Lock(ctx, "x")
		got <- errors.Join(err, l.Unlock(ctx))
	}
	go ask()
	inQueue(t, primary, "x", 1)
	w.takes()
	must(t, l.Unlock(ctx))
	must(t, <-got)
	equal(t, "what it did", strings.HasPrefix(w.takes(), "evalsha+wait"), true)

	l = lock(t, a, "x")
	go ask()
	inQueue(t, primary, "x", 1)
	must(t, replica.Pause())
	defer replica.Resume()
	must(t, l.Unlock(ctx))
	is(t, "without its replica", <-got, ErrNotReplicated)
	_, err := a.TryLock(ctx, "x")
	must(t, err)
	must(t, onlyLease(t, a).Unlock(ctx))
}

func TestACallerWhoLeavesDuringAWaitLeavesNothing(t *testing.T) {
	primary, replica := replicated(t)
	k := onReal(t, primary.Client(t), WithReplicas(1, 2*time.Second))
	must(t, lock(t, k, "warm").Unlock(t.Context()))
	must(t, replica.Pause())
	defer replica.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := k.Lock(ctx, "x")
	is(t, "answer", err, context.DeadlineExceeded)
	if took := time.Since(began); took > time.Second {
		t.Errorf("it returned after %v", took)
	}
	other := onReal(t, primary.Client(t))
	redistest.Eventually(t, time.Second, func() bool {
		s, err := other.Inspect(t.Context(), "x")
		return err == nil && !s.Held
	}, "it is free")
}

func TestAClientThatReadsImpatientlyMayWaitForReplicas(t *testing.T) {
	primary, replica := replicated(t)
	k := onReal(t, primary.Client(t, func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond }))
	must(t, lock(t, k, "warm").Unlock(t.Context()))
	must(t, replica.Pause())
	defer replica.Resume()
	_, err := k.TryLock(t.Context(), "x", WithReplicas(1, 300*time.Millisecond))
	is(t, "answer", err, ErrNotReplicated)
}

func TestAServerThatRefusesWaitIsNamed(t *testing.T) {
	s := redistest.RealOnly(t, "--rename-command", "WAIT", "")
	k := onReal(t, s.Client(t))
	_, err := k.Lock(t.Context(), "x", WithReplicas(1, time.Second))
	is(t, "answer", err, ErrNotReplicated)
	names(t, err, "WithReplicas")
	names(t, err, "unknown command")
	_, err = k.TryLock(t.Context(), "x")
	must(t, err)
	must(t, onlyLease(t, k).Unlock(t.Context()))
}

func TestReplicasOfAClusterConfirmForTheMasterOfTheKey(t *testing.T) {
	cluster := redistest.ClusterWithReplicas(t)
	k := onReal(t, cluster.Client(t), WithReplicas(1, time.Second))
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		must(t, lock(t, k, name).Unlock(t.Context()))
	}
	at, err := cluster.NodeFor(t.Context(), "lk:a")
	must(t, err)
	must(t, cluster.Replica(at).Pause())
	_, err = k.TryLock(t.Context(), "a", WithReplicas(1, 200*time.Millisecond))
	is(t, "whose replica is away", err, ErrNotReplicated)
	must(t, cluster.Replica(at).Resume())
	redistest.Eventually(t, 10*time.Second, func() bool {
		l, err := k.TryLock(t.Context(), "a")
		return err == nil && l.Unlock(t.Context()) == nil
	}, "it is back")
}

func TestWithReplicasALockIsFollowedToWhereItsSlotGoes(t *testing.T) {
	cluster := redistest.ClusterWithReplicas(t)
	ctx := t.Context()
	k := onReal(t, cluster.Client(t), WithReplicas(1, time.Second), WithLease(2*time.Second))
	l := lock(t, k, "x")
	at, err := cluster.NodeFor(ctx, "lk:x")
	must(t, err)
	c := cluster.Node(at).Client(t)
	to := (at + 1) % 3
	target := cluster.Node(to).Client(t)
	slot := c.ClusterKeySlot(ctx, "lk:x").Val()
	must(t, target.Do(ctx, "cluster", "setslot", slot, "importing", c.ClusterMyID(ctx).Val()).Err())
	must(t, c.Do(ctx, "cluster", "setslot", slot, "migrating", target.ClusterMyID(ctx).Val()).Err())
	must(t, l.Unlock(ctx))
	must(t, c.Del(ctx, "lk:x").Err())
	l = lock(t, k, "x") // ASK
	equal(t, "it is not where it was", c.Exists(ctx, "lk:x").Val(), 0)
	must(t, l.Unlock(ctx))
	for _, n := range []*redis.Client{target, c, cluster.Node(3 - at - to).Client(t)} {
		must(t, n.Do(ctx, "cluster", "setslot", slot, "node", target.ClusterMyID(ctx).Val()).Err())
	}
	l = lock(t, k, "x") // MOVED
	must(t, l.Unlock(ctx))
	equal(t, "it is there", target.Exists(ctx, "lk:x").Val(), 1)
}

func TestWithReplicasWhatCannotBeIsRefusedAtOnce(t *testing.T) {
	for want, o := range map[string]LockOption{
		"0 replicas":        WithReplicas(0, time.Second),
		"-1 replicas":       WithReplicas(-1, time.Second),
		"less than 1 ms":    WithReplicas(1, 0),
		"half of the lease": WithReplicas(1, 6*time.Second),
	} {
		_, err := New(nil, o)
		if err == nil || !strings.Contains(err.Error(), "WithReplicas") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestWithReplicasAnAcquireHasTheTimeOfTheWaitInAddition(t *testing.T) {
	var none *replicas
	equal(t, "without", none.patience(time.Second), time.Second)
	r := &replicas{1, 300 * time.Millisecond}
	equal(t, "with", r.ack(500*time.Millisecond), link.Ack{Replicas: 1, Within: 300 * time.Millisecond, Patience: 800 * time.Millisecond})
}
