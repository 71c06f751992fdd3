package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeReader answers every read the same, after a while.
type fakeReader struct {
	takes time.Duration
	value string
	stale bool
	err   error
}

// read takes its time: on the clock of a bubble.
func (f fakeReader) read(context.Context, string) (string, bool, error) {
	time.Sleep(f.takes)
	return f.value, f.stale, f.err
}

func (f fakeReader) close() error { return nil }

// watch lets 20 callers on 2 nodes read for ten seconds, with a pause of about a second.
func watch(t *testing.T, answer fakeReader, notice func(uint64)) (seen *recording) {
	synctest.Test(t, func(t *testing.T) {
		nodes := []*node{{reader: answer}, {reader: answer}}
		c := &crowd{nodes: nodes, callers: 10, think: time.Second, work: drawnKeys(1), notice: notice}
		s := c.start(t.Context())
		time.Sleep(10 * time.Second)
		live := s.reads()
		seen = s.stop()
		if after := seen.reads.Load() - live; after < 0 || after > 20 {
			t.Errorf("%d reads ended after the stop, 20 callers", after)
		}
	})
	return seen
}

func TestCallersReadThinkAndReadAgain(t *testing.T) {
	var newest atomic.Uint64
	seen := watch(t, fakeReader{takes: 100 * time.Millisecond, value: "hot#7", stale: true}, newest.Store)
	// One read of 0.1 s and one pause of 0.5 to 1.5 s make 1.1 s: about 9 reads of each.
	if reads := seen.reads.Load(); reads < 150 || reads > 210 || seen.stale != reads {
		t.Errorf("%d reads, %d of them stale", reads, seen.stale)
	}
	if seen.errors != 0 || newest.Load() != 7 {
		t.Errorf("%d errors (%v), newest value %d", seen.errors, seen.first, newest.Load())
	}
	if p := seen.quantile(0.5); p < 100*time.Millisecond || p > 101*time.Millisecond {
		t.Errorf("p50 %v, every read took 100ms", p)
	}
}

func TestAnotherKeysValueIsAnError(t *testing.T) {
	seen := watch(t, fakeReader{value: "cold#7"}, nil)
	if seen.errors == 0 || seen.errors != seen.reads.Load() || !strings.Contains(seen.first.Error(), `"cold#7"`) {
		t.Errorf("%d errors (%v) of %d reads", seen.errors, seen.first, seen.reads.Load())
	}
}

func TestAFailedReadIsAnError(t *testing.T) {
	broken := errors.New("broken")
	seen := watch(t, fakeReader{err: broken}, nil)
	if seen.errors == 0 || !errors.Is(seen.first, broken) {
		t.Errorf("%d errors, the first is %v", seen.errors, seen.first)
	}
}

func TestAnInterruptedReadCountsForNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &crowd{work: drawnKeys(1)}
	one := &caller{shift: &shift{crowd: c}, node: &node{reader: fakeReader{err: ctx.Err()}}, seen: new(recording)}
	one.read(ctx, hotKey)
	if one.seen.errors != 0 || one.seen.reads.Load() != 0 {
		t.Errorf("%d errors, %d reads", one.seen.errors, one.seen.reads.Load())
	}
}
