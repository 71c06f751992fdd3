package cache_test

import (
	"context"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// do does one step to its end.
func (w *randomWorld) do(s randomStep) {
	n := w.node(s.node)
	switch s.deed {
	case doGet, doGetEntry, doGetFresh, doPeek, doRefresh:
		w.call(n, s)
	case doSet, doDelete, doExpire:
		if n := w.write(s); s.pick%2 == 0 { // who writes often reads at once
			w.call(n, randomStep{deed: doGetEntry, key: s.key})
		}
	case doDeleteAll:
		n.deleteAll()
	case doClear:
		w.change(s.key, func(*ledger, int) { n.endAll(s, w.ledgers, n.Clear) })
	case doEndTag:
		w.change(s.key, func(*ledger, int) { n.endTag(s) })
	case doWrite:
		w.change(s.key, func(*ledger, int) {})
	case doDel:
		w.change(s.key, func(l *ledger, _ int) { w.others(func() { w.bubble.Mini().Del(l.redisKey) }, l) })
	case doFlush:
		w.others(func() { w.bubble.Mini().FlushAll() }, w.ledgers...)
	case doRestart:
		w.restart()
	case doRule:
		n.rule(s)
	case doFreeze, doCut, doRefuse:
		n.partition(s)
	case doKill:
		n.kill(s.node)
	case doClose:
		n.replace(s.node)
	}
}

func (w *randomWorld) node(i int) *randomNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[i]
}

// ask begins a call on n.
func (w *randomWorld) ask(n *randomNode, s randomStep) *question {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.ledgers[s.key]
	w.note(l.key, "%v: %v", n, s.deed)
	q := &question{node: n, deed: s.deed, began: w.now(), until: forever, known: len(l.confirmed), version: l.version, there: l.servable()}
	if s.span > 0 {
		q.until = q.began + s.span
	}
	if s.deed == doRefresh {
		n.refreshing[l.key]++
	}
	return q
}

// call makes a reading call and judges its answer.
func (w *randomWorld) call(n *randomNode, s randomStep) answer {
	q, l := w.ask(n, s), w.ledgers[s.key]
	ctx, cancel := context.Background(), func() {}
	if s.span > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.span)
	}
	defer cancel()
	a := n.answer(ctx, l.key, s.deed)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(l.key, "%v: %v from %v: %q %v %v", n, q.deed, q.began, a.value, a.state, a.err)
	if s.deed == doRefresh && !isContextError(a.err) { // else it goes on without its caller
		n.refreshing[l.key]--
	}
	if !n.dead {
		l.inTime(q)
		l.judge(q, a)
	}
	return a
}

func (n *randomNode) answer(ctx context.Context, key string, d deed) (a answer) {
	var e cache.Entry[string]
	switch d {
	case doGetEntry:
		e, a.err = n.GetEntry(ctx, key)
	case doGetFresh:
		e, a.err = n.GetEntry(ctx, key, cache.Fresh())
	case doPeek:
		var ok bool
		e, ok, a.err = n.Peek(ctx, key)
		a.none = !ok && a.err == nil
		if e.NotFound {
			a.err = cache.ErrNotFound
		}
	case doRefresh:
		e.Value, a.err = n.Refresh(ctx, key)
	default:
		e.State = cache.StateStale // for all we know
		e.Value, a.err = n.Get(ctx, key)
	}
	a.value, a.state = e.Value, e.State
	return a
}

// change writes to the database and then does what is told. The writers of a key take turns: the
// order of two writes is that of what they tell the cache.
func (w *randomWorld) change(key int, tell func(l *ledger, version int)) {
	w.writers[key] <- struct{}{}
	defer func() { <-w.writers[key] }()
	l := w.ledgers[key]
	w.mu.Lock()
	version := l.write()
	w.mu.Unlock()
	tell(l, version)
}

// write changes a row and tells a node.
func (w *randomWorld) write(s randomStep) (n *randomNode) {
	w.change(s.key, func(l *ledger, version int) {
		if s.deed == doSet && !exists(version) {
			s.deed = doDelete
		}
		n = w.node(s.node)
		s.span = 0 // a writer stays: the next one's turn comes when Redis will hear no more of it
		q := w.ask(n, s)
		w.mu.Lock()
		told := l.revokes() // at least on this node, also if Redis hears nothing of it
		w.mu.Unlock()
		err := n.tell(l, version, s.deed)
		w.mu.Lock()
		defer w.mu.Unlock()
		told()
		w.note(l.key, "%v: %v from %v: %v", n, q.deed, q.began, err)
		switch {
		case n.dead:
		case err != nil:
			l.inTime(q)
			l.excuse(q, err)
		case s.deed != doExpire:
			l.inTime(q)
			l.confirm(version, n)
		}
	})
	return n
}

func (n *randomNode) tell(l *ledger, version int, d deed) error {
	ctx := context.Background()
	switch d {
	case doDelete:
		return n.Delete(ctx, l.key)
	case doExpire:
		return n.Expire(ctx, l.key)
	}
	brings := func() {
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		l.brought(version)
	}
	brings()
	defer brings()
	options := []cache.SetOption{cache.Tags(n.w.tagsOf(l.key)...)}
	if n.w.rows {
		options = append(options, cache.RowVersion(uint64(version)))
	}
	return n.Set(ctx, l.key, value(l.key, version), options...)
}

// deleteAll deletes all keys in one call. Nothing was written: each may be loaded again as it is.
func (n *randomNode) deleteAll() {
	w := n.w
	var all []*question
	var versions []int
	var told []func()
	for key := range w.keys {
		all = append(all, w.ask(n, randomStep{deed: doDeleteAll, key: key}))
	}
	w.mu.Lock()
	for _, l := range w.ledgers {
		versions, told = append(versions, l.version), append(told, l.revokes())
	}
	w.mu.Unlock()
	err := n.Delete(context.Background(), w.keys...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, l := range w.ledgers {
		told[i]()
		w.note(l.key, "%v: deleteall from %v: %v", n, all[i].began, err)
		switch {
		case n.dead:
		case err != nil:
			l.excuse(all[i], err)
		default:
			l.confirm(versions[i], n)
		}
	}
}

// endTag ends the tag of one key or of all, or its freshness.
func (n *randomNode) endTag(s randomStep) {
	which := n.w.ledgers[s.key : s.key+1]
	tag := which[0].key
	if s.pick%3 == 0 {
		tag, which = "all", n.w.ledgers
	}
	if !n.w.tags || s.pick/3%4 == 0 {
		which = nil // nothing is promised
	}
	n.endAll(s, which, func(ctx context.Context) error {
		if s.pick/3%4 == 0 {
			return n.ExpireTag(ctx, tag)
		}
		return n.InvalidateTag(ctx, tag)
	})
}

// endAll ends what is cached of some keys without touching their entries. Nodes may give back leases whenever they
// hear of it, and it may be tried again.
func (n *randomNode) endAll(s randomStep, which []*ledger, end func(context.Context) error) {
	w := n.w
	q := w.ask(n, s)
	w.mu.Lock()
	var versions []int
	for _, l := range which {
		versions = append(versions, l.version)
		l.revoked = append(l.revoked, &span{w.now(), w.now() + w.o.TTL + 5*time.Second})
	}
	w.mu.Unlock()
	err := end(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, l := range which {
		w.note(l.key, "%v: %v from %v: %v", n, s.deed, q.began, err)
		switch {
		case n.dead:
		case err != nil:
			l.excuse(q, err)
		default:
			l.confirmed = append(l.confirmed, confirmation{versions[i], n, w.now()})
		}
	}
}

// others do something to Redis that removes entries.
func (w *randomWorld) others(remove func(), which ...*ledger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	remove()
	for _, l := range which {
		w.note(l.key, "others have removed it from Redis")
		l.revokes()()
		l.confirm(l.version, nil)
	}
}

// restart is a crash of Redis that loses everything.
func (w *randomWorld) restart() {
	w.mu.Lock()
	for _, n := range w.nodes {
		n.troubledNow()
	}
	w.mu.Unlock()
	w.bubble.Restart(w.t)
	w.others(func() {}, w.ledgers...)
}

// The faults of commands, and what they may hit.
var (
	randomFaults = [...]struct {
		name string
		rule func(*redistest.Faults, redistest.Match, time.Duration) *redistest.Rule
	}{
		{"LoseReply", func(f *redistest.Faults, m redistest.Match, _ time.Duration) *redistest.Rule { return f.LoseReply(m) }},
		{"Late", func(f *redistest.Faults, m redistest.Match, _ time.Duration) *redistest.Rule { return f.Late(m) }},
		{"Repeat", func(f *redistest.Faults, m redistest.Match, _ time.Duration) *redistest.Rule { return f.Repeat(m) }},
		{"Hang", (*redistest.Faults).Hang},
		{"Delay", (*redistest.Faults).Delay},
	}
	randomTargets = [...]struct {
		name  string
		match redistest.Match
	}{
		{"anything", isOurs}, {"scripts", redistest.Name("evalsha")}, {"reads", isRead}, {"acquire", isAcquire}, {"renew", isRenewal},
		{"commit", isCommit}, {"fail", isFailure}, {"invalidations", isInvalidation},
	}
)

// rule disturbs the next one or two commands of a kind. What it keeps lands later in the bubble.
func (n *randomNode) rule(s randomStep) {
	fault, target := randomFaults[s.pick%5], randomTargets[s.pick/5%8]
	n.note("%s of %s, %v", fault.name, target.name, s.span)
	r := fault.rule(n.faults, target.match, s.span).Times(1 + s.pick/40%2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.Wait(ctx)
	time.Sleep(s.span)
	if late := r.Release(context.Background()); len(late) > 0 {
		n.note("%d commands have landed late", len(late))
	}
}
