package linear

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"
)

// rules are the promises about age, as far as they can be seen from outside.
//
//   - On its own node a Delete that returned without an error holds at once, and always.
//   - On the others it holds after heard, unless they are cut off from Redis; if Redis did not confirm
//     it, after the bound that the error named.
//   - A value that was overwritten longer than windows ago is served by nobody, cut off or not.
//   - Nothing is read that has not been written yet.
type rules struct {
	heard, windows, late time.Duration
	alone                []span // who was cut off, the recovery included
}

// span is a time in which a node may have been without Redis.
type span struct {
	node     int
	from, to time.Duration
}

// debt is a write that has to be known from some time on.
type debt struct {
	since time.Duration
	op
}

// debts are sorted by time, and each is the newest value so far.
type debts []debt

func newDebts(all []debt) (d debts) {
	slices.SortFunc(all, func(a, b debt) int { return cmp.Compare(a.since, b.since) })
	for _, x := range all {
		if len(d) == 0 || x.Value > d[len(d)-1].Value {
			d = append(d, x)
		}
	}
	return d
}

// at is the newest value that a read must know that began then; 0 if none.
func (d debts) at(start time.Duration) op {
	i := sort.Search(len(d), func(i int) bool { return d[i].since >= start })
	if i == 0 {
		return op{}
	}
	return d[i-1].op
}

// owed is what one node has to know.
type owed struct{ own, others, all debts }

func (r rules) owedBy(node int, writes []op) owed {
	var own, others, all []debt
	for _, w := range writes {
		all = append(all, debt{w.Done + r.windows, w})
		switch {
		case w.Unconfirmed:
			others = append(others, debt{w.End + max(r.heard, w.Bound) + r.late, w})
		case w.Node == node:
			own = append(own, debt{w.End, w})
		default:
			others = append(others, debt{w.End + r.heard, w})
		}
	}
	return owed{newDebts(own), newDebts(others), newDebts(all)}
}

// verdict is what came of a check.
type verdict struct {
	findings []string
	reads    int
	strict   int // those held against what others had told, too

	writes, unconfirmed int
}

// check holds the history against the rules.
func (r rules) check(history []op) (v verdict) {
	writes, began := v.sift(history)
	by := map[int]owed{}
	alone := spansOf(r.alone)
	for _, o := range history {
		if o.Write || o.Failed != "" {
			continue
		}
		if _, ok := by[o.Node]; !ok {
			by[o.Node] = r.owedBy(o.Node, writes)
		}
		v.add(o, by[o.Node], !alone[o.Node].meet(o))
		if began[o.Value] > o.End {
			v.findings = append(v.findings, fmt.Sprintf("%v: not written yet", o))
		}
	}
	return v
}

// sift takes the writes out of the history, and when each value's began. A write whose node was killed is
// in nobody's journal: nothing is owed for it, but it may be read.
func (v *verdict) sift(history []op) (writes []op, began map[int64]time.Duration) {
	began = map[int64]time.Duration{}
	for _, o := range history {
		switch {
		case o.Failed != "":
			v.findings = append(v.findings, fmt.Sprintf("%v: %s", o, o.Failed))
		case o.Write:
			writes = append(writes, o)
			began[o.Value] = o.Start
			v.writes++
			if o.Unconfirmed {
				v.unconfirmed++
			}
		}
	}
	return writes, began
}

func (v *verdict) add(read op, by owed, strict bool) {
	v.reads++
	late := func(w op, why string) {
		if w.Value > read.Value {
			v.findings = append(v.findings, fmt.Sprintf("%v: does not know of %v, %s", read, w, why))
		}
	}
	late(by.own.at(read.Start), "made on the same node")
	late(by.all.at(read.Start), "longer ago than anything may be served")
	if strict {
		v.strict++
		late(by.others.at(read.Start), "of which others were told")
	}
}

// spans are those of one node, sorted and apart from each other.
type spans []span

func spansOf(all []span) map[int]spans {
	by := map[int]spans{}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range all {
		of := by[s.node]
		if last := len(of) - 1; last >= 0 && s.from <= of[last].to {
			of[last].to = max(of[last].to, s.to)
			continue
		}
		by[s.node] = append(of, s)
	}
	return by
}

// meet tells whether a part of o lies in one of them.
func (s spans) meet(o op) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].to >= o.Start })
	return i < len(s) && s[i].from <= o.End
}

// stalls are the times at which a process had to go on without Redis, as it says itself. Nobody need have
// cut it off: calls take longer than redisTimeout where the machine is busy or the process was paused. The
// history is one process's.
func stalls(history []op) (all []span) {
	var known int64
	for _, o := range history {
		if o.RedisErrors > known {
			known = o.RedisErrors
			all = append(all, span{o.Node, o.Start - redisTimeout, o.End})
		}
	}
	return all
}
