package linear

import "time"

// fault is something that happens to a node.
type fault struct {
	name  string
	alone bool          // the node cannot reach Redis meanwhile
	most  time.Duration // how long it lasts; 0: a moment
	begin func(*fleet, *place)
	end   func(*fleet, *place)
}

var (
	streamCut   = fault{name: "stream cut", begin: func(_ *fleet, p *place) { p.proxy.cut(theStream) }}
	streamHoled = fault{name: "stream in a black hole", most: 3 * time.Second,
		begin: func(_ *fleet, p *place) { p.proxy.hole(theStream, true) },
		end:   func(_ *fleet, p *place) { p.proxy.hole(theStream, false) }}
	allCut     = fault{name: "all cut", alone: true, begin: func(_ *fleet, p *place) { p.proxy.cut(everything) }}
	allRefused = fault{name: "all refused", alone: true, most: 3 * time.Second,
		begin: func(_ *fleet, p *place) { p.proxy.refuse(true) },
		end:   func(_ *fleet, p *place) { p.proxy.refuse(false) }}
	allHoled = fault{name: "all in a black hole", alone: true, most: 3 * time.Second,
		begin: func(_ *fleet, p *place) { p.proxy.hole(everything, true) },
		end:   func(_ *fleet, p *place) { p.proxy.hole(everything, false) }}
	longGone = fault{name: "cut off for longer than its windows", alone: true, most: windows * 3 / 2,
		begin: allHoled.begin, end: allHoled.end}
	paused = fault{name: "paused", most: longestPause,
		begin: func(_ *fleet, p *place) { p.proc.Pause() },
		end:   func(_ *fleet, p *place) { p.proc.Resume() }}
	killed = fault{name: "killed", most: time.Second,
		begin: func(_ *fleet, p *place) { p.proc.Kill() },
		end:   (*fleet).start}
)

// usual are the faults of the ordinary run; the soak has longGone, too.
var usual = []fault{streamCut, streamHoled, allCut, allRefused, allHoled, paused, killed}

// disturb makes things happen for so long.
func (f *fleet) disturb(d time.Duration) {
	for until := now() + d; now() < until; {
		for _, p := range f.nodes {
			if p.undo != nil && now() >= p.undoAt {
				f.end(p)
			}
		}
		if len(f.faults) > 0 {
			f.beginOne(f.nodes[f.rng.IntN(nodes)], f.faults[f.rng.IntN(len(f.faults))])
		}
		rest(time.Duration(f.rng.Int64N(int64(300 * time.Millisecond))))
	}
}

// beginOne leaves alone who suffers already, or has been cut off a short while ago.
func (f *fleet) beginOne(p *place, what fault) {
	if p.undo != nil || what.alone && now() < p.calmUntil {
		return
	}
	f.seen[what.name]++
	began := now()
	p.undo = func() {
		if what.end != nil {
			what.end(f, p)
		}
		if what.alone {
			f.alone = append(f.alone, span{p.id, began, now() + recovery})
			p.calmUntil = now() + f.calm
		}
	}
	what.begin(f, p)
	if what.most == 0 {
		f.end(p)
		return
	}
	p.undoAt = now() + time.Duration(f.rng.Int64N(int64(what.most)))
}

func (f *fleet) end(p *place) {
	if p.undo != nil {
		p.undo()
		p.undo = nil
	}
}
