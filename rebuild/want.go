package rebuild

import "time"

// Want is how a caller wants to be answered. The zero value takes what there is.
type Want struct {
	Fresh     bool          // nothing stale
	NoStore   bool          // joins a load, or loads for itself alone; keeps nothing
	SkipLocal bool          // asks Redis, where there is one, rather than this node's memory
	Wait      time.Duration // with something stale at hand, for what comes new
	spent     bool          // it has waited
}

// taste is what a decision depends on.
type taste uint8

const (
	anything  taste = iota
	patiently       // would rather wait for the new value than be served a stale one
	onlyFresh       // would rather fail
	atOnce          // takes what there is to serve, and waits for nothing
)

func (w Want) taste() taste {
	switch {
	case w.Fresh:
		return onlyFresh
	case w.spent:
		return atOnce
	case w.Wait > 0:
		return patiently
	}
	return anything
}

// flight names the reads that may be shared: callers who want the same. How long one waits is his
// own.
func (w Want) flight() string {
	name := []byte{'a' + byte(w.taste())}
	if w.SkipLocal {
		name = append(name, 's')
	}
	return string(name)
}

// hurried is w after the wait: it only looks.
func (w Want) hurried() Want {
	w.Wait, w.spent = 0, true
	return w
}
