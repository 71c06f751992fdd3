package rebuild

type acquireArgs struct {
	token    string
	lease    Millis
	have     Identity
	bar      Micros
	mode     Mode
	notAfter Micros
}

func (w *twin) acquire(us Micros, a acquireArgs) told {
	if a.notAfter > 0 && us > a.notAfter && !w.without.has(notAfter) {
		return told{Status: statusLate}
	}
	switch {
	case w.what != present && a.mode == Try:
		w.set(Entry{Header: Header{Kind: KindLease}}, us.millis()+a.lease)
		w.lease(a.token, w.beginning(us), us.millis()+a.lease)
		return told{Status: statusLeased, Header: w.Header}
	case w.what == absent:
		return told{Status: statusAbsent}
	case w.what == garbled:
		return told{Status: statusUnreadable}
	}
	if s := w.standing(us, a); s != statusIdle || a.mode != Try {
		return w.report(us, a, s)
	}
	w.touch(us, a.lease)
	w.lease(a.token, w.beginning(us), us.millis()+a.lease)
	return w.report(us, a, statusLeased)
}

// standing is what there is to say of the entry before anything is done to it: idle is what may be
// leased. Who waits for a holder leaves the flag.
func (w *twin) standing(us Micros, a acquireArgs) Status {
	switch {
	case w.leased(us) && w.Token == a.token:
		return statusLeased
	case w.Kind == KindPass && w.current(us):
		return statusPass
	case (w.Kind == KindValue || w.Kind == KindNotFound) && w.current(us) && w.reaches(a.bar):
		return statusFresh
	case w.leased(us) && !w.without.has(heldLease):
		if a.mode == Wait && !w.without.has(waitersFlag) {
			w.touch(us, 1)
			w.Waiters = true
		}
		return statusHeld
	case w.RetryAfter > us.millis() && !w.without.has(acquireBackoff):
		return statusBackoff
	}
	return statusIdle
}

func (w *twin) reaches(bar Micros) bool {
	if w.without.has(earlyBar) {
		return bar == 0
	}
	return bar == 0 || w.Version >= bar
}

// report answers with the header, and with the rest where the caller has it not and may want it.
func (w *twin) report(us Micros, a acquireArgs, s Status) told {
	r := told{Status: s, Header: w.Header}
	known := a.have.Writer != "" && a.have == w.Identity
	if w.Kind == KindFailed || (w.Kind == KindNotFound || w.Kind == KindValue && w.IfError > us.millis()) && !known {
		r.Rest = w.Message + w.Carried + w.Payload
	}
	return r
}
