package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
)

// recorder is a hook that writes down which scripts of locks its clients run, when, and what came of it. It stands above
// what disturbs them.
type recorder struct {
	began time.Time
	kinds map[string]kindOfStep // by the hash of the script

	mu      sync.Mutex // guards what follows
	all     []porcupine.Operation
	running int // calls; some go on though their callers have left
}

// trio is the scripts that a history is made of.
type trio struct{ acquire, renew, release *redis.Script }

var genuine = trio{scripts.acquire, scripts.renew, scripts.release}

func newRecorder(s trio) *recorder {
	return &recorder{began: time.Now(), kinds: map[string]kindOfStep{
		s.acquire.Hash(): toAcquire, s.renew.Hash(): toRenew, s.release.Hash(): toRelease}}
}

func (r *recorder) now() int64 { return int64(time.Since(r.began)) }

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer r.begin()()
		called := r.now()
		err := next(ctx, cmd)
		r.note(cmd, called, r.now())
		return err
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer r.begin()()
		called := r.now()
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			r.note(cmd, called, r.now())
		}
		return err
	}
}

// begin counts a call until what it returns is called.
func (r *recorder) begin() (end func()) {
	count := func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running += n
	}
	count(1)
	return func() { count(-1) }
}

// ended tells whether no call goes on.
func (r *recorder) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running == 0
}

// history is what was written down.
func (r *recorder) history() []porcupine.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// note writes down one command. Of one without an answer nobody knows when it is over; one that the server has refused
// has not been.
func (r *recorder) note(cmd redis.Cmder, called, returned int64) {
	do, ok := r.read(cmd)
	if !ok || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return
	}
	values, err := cmd.(*redis.Cmd).Slice()
	o := outcome{unknown: err != nil}
	if err == nil {
		o.answer, _ = readAnswer(values, 0)
	} else {
		returned = anytime
	}
	r.add(do, o, called, returned)
}

func (r *recorder) add(do step, o outcome, called, returned int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, porcupine.Operation{Input: do, Call: called, Output: o, Return: returned})
}

// read reads what a command asks for; false if it is no step of a lock.
func (r *recorder) read(cmd redis.Cmder) (do step, ok bool) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return do, false
	}
	args := cmd.Args()
	hash := fmt.Sprint(args[1])
	if cmd.Name() == "eval" {
		hash = redis.NewScript(hash).Hash()
	}
	do.kind, ok = r.kinds[hash]
	if !ok {
		return do, false
	}
	do.key, args = fmt.Sprint(args[3]), args[4:]
	do.token = fmt.Sprint(args[0])
	if do.kind != toRelease {
		do.lease = args[3].(int64)
	}
	if do.kind == toAcquire {
		do.notAfter = args[8].(int64)
	}
	return do, true
}

// judge tells whether what was written down is legal. Many commands without an answer can make that take for ever.
func (r *recorder) judge(within time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(linear, r.history(), within)
}

// anew begins another history.
func (r *recorder) anew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}

// fine fails with the history if it is not legal; false if that cannot be told.
func (r *recorder) fine(t *testing.T, within time.Duration) bool {
	t.Helper()
	got := r.judge(within)
	if got == porcupine.Illegal {
		t.Fatalf("the history is not legal:\n%s", r)
	}
	return got == porcupine.Ok
}

func (r *recorder) String() string {
	all := r.history()
	slices.SortFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	for _, op := range all {
		fmt.Fprintf(&text, "%9d-%9d %+v: %+v\n", op.Call/1000, op.Return/1000, op.Input, op.Output)
	}
	return text.String()
}
