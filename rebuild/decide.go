package rebuild

// State is how what is cached stands to its windows.
type State uint8

const (
	Gone     State = iota // nothing that may be served
	Fresh                 // a value
	Stale                 // a value, inside stale-while-revalidate
	IfError               // a value, only to be served if the refresh fails or is slow
	NotFound              // "does not exist", believed
	Pass                  // known to be not storable
	Foreign               // fresh, but of a codec that this node does not read
)

// View is all that a decision depends on.
type View struct {
	State   State
	Held    bool // somebody holds the rebuild lease
	Backoff bool // the last load failed a short while ago
}

// Deed is what to do for a caller.
type Deed uint8

const (
	Serve  Deed = iota // what is there
	Load               // get the lease and load
	Await              // wait for the holder of the lease
	Refuse             // the remembered failure
	Beside             // load without a lease, one per node
)

// Verdict is a Deed and what goes with it.
type Verdict struct {
	Deed    Deed
	Refresh bool // serve, and load in the background
	Grace   bool // for a limited time only; then, or on an error, serve what is there
	Patient bool // that time is each caller's own: the flight goes on
}

// Decide is the whole of the table of design section 6: nothing else decides. For who wants
// only what is fresh, a stale value counts as none; who is patient treats it as one that is
// there for errors.
func Decide(v View, t taste) Verdict {
	if t == onlyFresh && (v.State == Stale || v.State == IfError) {
		v.State = Gone
	}
	if t == atOnce && (v.State == Stale || v.State == IfError) {
		return Verdict{Deed: Serve} // the flight that was left goes on
	}
	switch v.State {
	case Fresh, NotFound:
		return Verdict{Deed: Serve}
	case Stale:
		if t == patiently {
			return ifError(v, t)
		}
		return Verdict{Deed: Serve, Refresh: !v.Held && !v.Backoff}
	case IfError:
		return ifError(v, t)
	case Pass, Foreign:
		return Verdict{Deed: Beside}
	}
	switch {
	case v.Held:
		return Verdict{Deed: Await}
	case v.Backoff:
		return Verdict{Deed: Refuse}
	}
	return Verdict{Deed: Load}
}

func ifError(v View, t taste) Verdict {
	w := Verdict{Grace: true, Patient: t == patiently}
	switch {
	case v.Held:
		w.Deed = Await
	case v.Backoff:
		return Verdict{Deed: Serve}
	default:
		w.Deed = Load
	}
	return w
}

// aheadOf is how far an instant may lie in the future before it is taken to come from a server
// whose clock has stepped back since.
const aheadOf = Micros(1_000_000)

// view judges an entry at the server's time now.
func (h Header) view(now Micros) View {
	return View{
		State:   h.state(now),
		Held:    h.Token != "" && h.LeaseUntil.micros() > now && h.Start <= now+aheadOf,
		Backoff: h.RetryAfter.micros() > now,
	}
}

func (h Header) state(now Micros) State {
	fresh := h.Fresh.micros() > now && h.Version <= now+aheadOf
	switch h.Kind {
	case KindValue:
		return window(fresh, h.Stale.micros() > now, h.IfError.micros() > now)
	case KindNotFound:
		if fresh {
			return NotFound
		}
	case KindPass:
		if fresh {
			return Pass
		}
	}
	return Gone
}

func window(fresh, stale, ifError bool) State {
	switch {
	case fresh:
		return Fresh
	case stale:
		return Stale
	case ifError:
		return IfError
	}
	return Gone
}

func (m Millis) micros() Micros { return Micros(m) * 1000 }
