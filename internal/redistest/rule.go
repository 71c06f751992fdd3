package redistest

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Rule is one fault of a [Faults].
type Rule struct {
	faults *Faults
	match  Match
	do     action
	seen   chan struct{} // closed by the first match
	open   chan struct{} // closed when nothing is held back any more

	// Guarded by faults.mu.
	left  int // matches still to come, -1 for all
	count int
	ended bool
	kept  []call
}

// action is what a rule does to one call.
type action func(*Rule, context.Context, call) error

// Times limits the rule to its next n matches; the others pass. It returns the
// rule. Without it, every match is caught.
func (r *Rule) Times(n int) *Rule {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.left = n
	return r
}

// Count is the number of matches so far.
func (r *Rule) Count() int {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	return r.count
}

// Wait returns when the rule has caught something, or with ctx's error.
func (r *Rule) Wait(ctx context.Context) error {
	select {
	case <-r.seen:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release ends the rule, lets the callers go that it holds, and executes under
// ctx what [Faults.Late] and [Faults.Repeat] have kept, in the order in which it
// came. It returns the executed commands with their replies.
func (r *Rule) Release(ctx context.Context) []*redis.Cmd {
	kept := r.end()
	var done []*redis.Cmd
	for _, c := range kept {
		done = append(done, c.copy(ctx)...)
	}
	return done
}

// Clear ends the rule and lets the callers go that it holds. What Late and
// Repeat have kept is never executed.
func (r *Rule) Clear() { r.end() }

func (r *Rule) end() []call {
	f := r.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = slices.DeleteFunc(f.rules, func(other *Rule) bool { return other == r })
	return r.endLocked()
}

func (r *Rule) endLocked() []call {
	if !r.ended {
		r.ended = true
		close(r.open)
	}
	kept := r.kept
	r.kept = nil
	return kept
}

func (r *Rule) countLocked() {
	if r.count == 0 {
		close(r.seen)
	}
	r.count++
	if r.left > 0 {
		r.left--
	}
}

func (r *Rule) keep(c call) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.kept = append(r.kept, c)
}

// wait returns after d (zero: never) or when the rule ends; with ctx's error if
// that ends first and counts.
func (r *Rule) wait(ctx context.Context, d time.Duration) error {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	if !r.faults.ObeyContext {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-over:
		return nil
	case <-r.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
