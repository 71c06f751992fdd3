package rebuild

func (w *twin) renew(us Micros, token string, start Micros, lease Millis) told {
	if !w.holds(token, start) {
		if w.without.has(renewGone) && w.Token == "" {
			if w.what != present {
				w.set(Entry{Header: Header{Kind: KindLease}}, us.millis()+lease)
			}
			w.lease(token, start, us.millis()+lease)
		}
		return w.refused(statusLost)
	}
	w.touch(us, lease)
	w.LeaseUntil = us.millis() + lease
	return told{Status: statusHeld}
}

func (w *twin) pass(us Micros, token string, start Micros, d Millis) told {
	if !w.holds(token, start) {
		return w.refused(statusRefused)
	}
	woken, ends := w.woken(), us.millis()+d
	h := Header{Kind: KindPass, Fresh: ends, Stale: ends, IfError: ends, HoldDown: w.HoldDown, Row: w.Row}
	w.set(Entry{Header: h}, max(ends, h.HoldDown))
	return told{Status: statusPassed, Published: woken}
}

type failArgs struct {
	token   string
	start   Micros
	pause   pauseArgs
	message string
}

// pauseArgs is how long a key is left alone after a failure.
type pauseArgs struct {
	backoff, longest Millis
	jitter           int // thousandths
}

// backoff counts one more failure, and says how long the key is left alone after it.
func (w *twin) backoff(a pauseArgs) (failures int, pause Millis) {
	failures = min(w.Failures+1, 255)
	pause = min(a.backoff<<min(failures-1, 30), a.longest)
	return failures, max(1, pause*Millis(a.jitter)/1000)
}

func (w *twin) fail(us Micros, a failArgs) told {
	if !w.holds(a.token, a.start) && !w.without.has(failLease) {
		return w.refused(statusRefused)
	}
	failures, pause := w.backoff(a.pause)
	retry, memory, woken := us.millis()+pause, 2*pause, w.woken()
	if w.Kind == KindValue && w.IfError > us.millis() || w.Kind == KindNotFound && w.current(us) {
		w.touch(us, max(w.IfError-us.millis(), memory))
		w.RetryAfter, w.Failures = retry, failures
		w.unlease()
	} else {
		h := Header{Kind: KindFailed, HoldDown: w.HoldDown, Row: w.Row, RetryAfter: retry, Failures: failures, Variable: len(a.message)}
		w.set(Entry{Header: h, Message: a.message}, max(us.millis()+memory, h.HoldDown))
	}
	return told{Status: statusFailed, Published: woken, Numbers: [2]int64{int64(retry), int64(failures)}}
}

// release with start 0 is of any lease of token, but not of the one that began at except.
func (w *twin) release(us Micros, token string, start, except Micros) told {
	if w.what != present || w.Token != token || w.Start == except || start != 0 && w.Start != start {
		return told{Status: statusGone}
	}
	woken := w.woken()
	if w.Kind == KindLease {
		w.drop(us, w.HoldDown)
	} else {
		w.touch(us, 1)
		w.unlease()
	}
	return told{Status: statusReleased, Published: woken}
}
