package rebuild

func (w *twin) delete(us Micros, holdDown Millis) told {
	woken := w.woken()
	ends := w.later(us, holdDown)
	if w.without.has(holdDownStays) {
		ends = (&twin{}).later(us, holdDown)
	}
	if w.without.has(deleteLease) && w.Token != "" {
		kept := w.Header
		w.set(Entry{Header: Header{Kind: KindLease, Token: kept.Token, Start: kept.Start, LeaseUntil: kept.LeaseUntil,
			Waiters: kept.Waiters}}, max(kept.LeaseUntil, us.millis()+1))
		return told{Status: statusDeleted}
	}
	w.drop(us, ends)
	return told{Status: statusDeleted, Published: woken}
}

// expire moves the windows so that freshness ends now; a failure stays remembered.
func (w *twin) expire(us Micros, d Millis) told {
	now, woken, holdDown := us.millis(), w.woken(), w.later(us, d)
	earlier := max(0, w.Fresh-now)
	switch {
	case w.Kind == KindValue && w.IfError-earlier > now:
		if w.Failures > 0 {
			w.touch(us, holdDown-now) // the count of failures lives as long as it did
		} else {
			w.until = max(w.IfError-earlier, holdDown)
		}
		w.Fresh, w.Stale, w.IfError, w.HoldDown = w.Fresh-earlier, w.Stale-earlier, w.IfError-earlier, holdDown
		w.unlease()
	case w.Kind == KindFailed && w.RetryAfter > now:
		w.touch(us, holdDown-now)
		w.HoldDown = holdDown
		w.unlease()
	default:
		w.drop(us, holdDown)
	}
	return told{Status: statusExpired, Published: woken}
}

type seizeArgs struct {
	token    string
	lease    Millis
	row      uint64
	holdDown Millis
	notAfter Micros
}

func (w *twin) seize(us Micros, a seizeArgs) told {
	if w.Row > a.row && a.row != 0 && !w.without.has(seizeRow) {
		return told{Status: statusOlder}
	}
	holdDown, woken := w.later(us, a.holdDown), w.woken()
	if a.notAfter > 0 && us > a.notAfter && !w.without.has(seizeNotAfter) {
		w.drop(us, holdDown)
		return told{Status: statusLate, Published: woken}
	}
	if w.leased(us) && w.Token == a.token {
		return told{Status: statusSeized, Numbers: [2]int64{int64(w.Start)}}
	}
	h := Header{Kind: KindLease, HoldDown: holdDown, Row: max(w.Row, a.row), Waiters: w.Waiters && !w.without.has(seizeFlag),
		Token: a.token, Start: w.beginning(us), LeaseUntil: us.millis() + a.lease}
	w.set(Entry{Header: h}, max(h.LeaseUntil, holdDown))
	return told{Status: statusSeized, Numbers: [2]int64{int64(h.Start)}}
}
