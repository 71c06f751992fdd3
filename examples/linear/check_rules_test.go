package linear

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const s = time.Second

func TestABadHistoryIsFound(t *testing.T) {
	r := rules{heard: s, windows: 8 * s, late: s / 2, alone: []span{{node: 1, from: 20 * s, to: 23 * s}}}
	write := op{Write: true, Node: 0, Start: 10*s - 2, Done: 10*s - 1, End: 10 * s, Value: 7}
	unconfirmed, early, last := write, write, write
	unconfirmed.Unconfirmed, unconfirmed.Bound = true, 3*s
	early.Value, early.Done, early.End = 3, s, 2*s
	last.Start, last.Done, last.End = 19*s, 19*s, 19500*time.Millisecond
	read := func(node int, value int64, start time.Duration) op {
		return op{Node: node, Value: value, Start: start, End: start + time.Millisecond}
	}
	failed := read(0, 7, 11*s)
	failed.Failed = "an error"
	for _, tc := range []struct {
		situation string
		write     op
		read      op
		findings  int
	}{
		{"known", write, read(1, 7, 12*s), 0},
		{"newer", write, read(1, 8, 12*s), 0},
		{"own, begun as the Delete returned", write, read(0, 6, 10*s), 0},
		{"own, begun after it", write, read(0, 6, 10*s+1), 1},
		{"own, much later", write, read(0, 6, 17*s), 1},
		{"another's, begun within the bound", write, read(1, 6, 11*s), 0},
		{"another's, begun after it", write, read(1, 6, 11*s+1), 1},
		{"cut off", last, read(1, 6, 21*s), 0},
		{"cut off while it reads", last, op{Node: 1, Value: 6, Start: 20*s - 1, End: 20*s + 1}, 0},
		{"back again", last, read(1, 6, 23*s+1), 1},
		{"not the one cut off", last, read(2, 6, 21*s), 1},
		{"its own, though cut off", op{Write: true, Node: 1, Done: 19 * s, End: 20 * s, Value: 7}, read(1, 6, 21*s), 1},
		{"cut off, past the windows", op{Write: true, Node: 0, Done: 12 * s, End: 20 * s, Value: 7}, read(1, 6, 20*s+1), 1},
		{"unconfirmed, own", unconfirmed, read(0, 6, 12*s), 0},
		{"unconfirmed, another's", unconfirmed, read(1, 6, 13500*time.Millisecond), 0},
		{"unconfirmed, past the bound", unconfirmed, read(1, 6, 13500*time.Millisecond+1), 1},
		{"unconfirmed, own, past the bound", unconfirmed, read(0, 6, 13500*time.Millisecond+1), 1},
		{"from the future", write, read(1, 7, 9*s), 1},
		{"begun before its write, ended after", write, op{Node: 1, Value: 7, Start: 9 * s, End: 11 * s}, 0},
		{"two rules at once", early, read(0, 2, 9*s+1), 2},
		{"it failed", write, failed, 1},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			for _, history := range [][]op{{tc.write, tc.read}, {tc.read, tc.write}} {
				if got := r.check(history).findings; len(got) != tc.findings {
					t.Errorf("findings %q, want %d", got, tc.findings)
				}
			}
		})
	}
}

// The check looks only at the newest value that is due; this looks at all of them.
func (r rules) oldFor(read op, writes []op) bool {
	alone := slices.ContainsFunc(r.alone, func(s span) bool { return s.node == read.Node && s.from <= read.End && read.Start <= s.to })
	return slices.ContainsFunc(writes, func(w op) bool {
		bound := r.heard
		switch {
		case w.Unconfirmed:
			bound = max(bound, w.Bound) + r.late
		case w.Node == read.Node:
			bound = 0
		}
		excused := alone && (w.Unconfirmed || w.Node != read.Node)
		return read.Value < w.Value && (read.Start > w.Done+r.windows || !excused && read.Start > w.End+bound)
	})
}

func TestTheCheckAgreesWithOneThatLooksAtEveryPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	old := 0
	for range 2000 {
		r := rules{heard: 3, windows: 20, late: 1}
		for range rng.IntN(6) {
			from := time.Duration(rng.IntN(60))
			r.alone = append(r.alone, span{rng.IntN(nodes), from, from + time.Duration(rng.IntN(12))})
		}
		var writes []op
		for range rng.IntN(8) {
			w := op{Write: true, Node: rng.IntN(nodes), Value: rng.Int64N(8) + 1, Done: time.Duration(rng.IntN(60))}
			w.End = w.Done + time.Duration(rng.IntN(5))
			w.Unconfirmed, w.Bound = rng.IntN(4) == 0, time.Duration(rng.IntN(9))
			writes = append(writes, w)
		}
		read := op{Node: rng.IntN(nodes), Value: rng.Int64N(8), Start: time.Duration(rng.IntN(80))}
		read.End = read.Start + time.Duration(rng.IntN(4))
		want := r.oldFor(read, writes)
		if got := r.check(append(writes, read)); (len(got.findings) > 0) != want {
			t.Fatalf("%+v\n%+v\n%v: findings %q, want some: %v", r, writes, read, got.findings, want)
		}
		if want {
			old++
		}
	}
	if old < 200 || old > 1800 {
		t.Errorf("%d of 2000 histories are bad: that says little", old)
	}
}

func TestAStallIsWhereACallWentOnWithoutRedis(t *testing.T) {
	read := func(start time.Duration, errors int64) op {
		return op{Node: 2, Start: start, End: start + 1, RedisErrors: errors}
	}
	got := stalls([]op{read(10*s, 0), read(20*s, 3), read(30*s, 3), read(40*s, 2), read(50*s, 4)})
	want := []span{{2, 20*s - redisTimeout, 20*s + 1}, {2, 50*s - redisTimeout, 50*s + 1}}
	if !slices.Equal(got, want) {
		t.Errorf("stalls %v, want %v", got, want)
	}
}
