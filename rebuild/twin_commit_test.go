package rebuild

type commitArgs struct {
	token                 string
	start                 Micros
	fresh, stale, ifError Millis
	row                   uint64
	setter, anew, keep    bool
	holdDown              Millis
	entry                 Entry
	pause                 pauseArgs
}

func (w *twin) commit(us Micros, a commitArgs) told {
	repeated := w.what == present && w.Writer == a.token && w.Version == a.start
	switch {
	case repeated && !w.without.has(repeatedCommit):
		return told{Status: statusCommitted, Header: w.Header}
	case !repeated && !w.holds(a.token, a.start) && !w.without.has(commitLease):
		return w.refused(statusRefused)
	case !a.anew && a.row != 0 && w.Row > a.row && !w.without.has(commitRow):
		return w.older(us, a)
	case a.keep && w.Kind != KindValue:
		w.touch(us, 1)
		w.unlease()
		return w.refused(statusRefused)
	}
	woken := w.woken()
	w.store(us, a)
	return told{Status: statusCommitted, Published: woken, Header: w.Header}
}

// older is a failure, or without anything to serve a value that may not be stored.
func (w *twin) older(us Micros, a commitArgs) told {
	failures, pause := w.backoff(a.pause)
	w.touch(us, 2*pause)
	if w.Kind == KindValue && w.IfError > us.millis() {
		w.RetryAfter, w.Failures = us.millis()+pause, failures
		return told{Status: statusOlder, Published: w.unlease(), Numbers: [2]int64{1}}
	}
	woken, ends := w.woken(), us.millis()+pause
	h := Header{Kind: KindPass, Fresh: ends, Stale: ends, IfError: ends, HoldDown: w.HoldDown, Row: w.Row}
	w.set(Entry{Header: h}, max(ends, h.HoldDown))
	return told{Status: statusOlder, Published: woken}
}

// store replaces the entry; its windows begin now, and end with a hold-down.
func (w *twin) store(us Micros, a commitArgs) {
	before, e, now := w.Entry, a.entry, us.millis()
	if !a.setter {
		e.HoldDown = max(before.HoldDown, a.holdDown)
	}
	if w.without.has(holdDownEnds) {
		e.HoldDown = 0
	}
	e.Fresh, e.Stale, e.IfError = now+a.fresh, now+a.stale, now+a.ifError
	if e.HoldDown.micros() > before.Start && (e.HoldDown > now || !w.without.has(holdDownStart)) {
		e.Fresh, e.Stale, e.IfError = min(e.Fresh, e.HoldDown), min(e.Stale, e.HoldDown), min(e.IfError, e.HoldDown)
	}
	if a.keep {
		e.Codec, e.Compression, e.Variable, e.Body = before.Codec, before.Compression, before.Variable, before.Body
		e.Carried, e.Payload = before.Carried, before.Payload
	}
	if !a.anew && a.row == 0 && before.Row != 0 && e.Kind == KindValue && !w.without.has(rowCarried) {
		e.Row = before.Row
	}
	w.set(e, max(e.Fresh, e.IfError, e.HoldDown, now+1))
}
