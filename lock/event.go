package lock

import (
	"context"
	"log/slog"
	"time"
)

// Kind is what happened to a lock.
type Kind string

// The kinds of events.
const (
	Acquired     Kind = "acquired"
	Refused      Kind = "refused"       // by TryLock: busy
	Repeated     Kind = "repeated"      // a Once has run this already
	Failed       Kind = "failed"        // an attempt ended with any other error
	Released     Kind = "released"      // given back
	Unreleased   Kind = "unreleased"    // giving it back failed, and is tried again
	Lost         Kind = "lost"          // the lease ended under its holder
	NotRenewed   Kind = "not renewed"   // a renewal had no answer, and is tried again
	HeldLong     Kind = "held long"     // for longer than WithHoldWarning
	HolderLost   Kind = "holder lost"   // acquired from a holder that never gave it back
	Abandoned    Kind = "abandoned"     // an attempt was given up on, and what may be left of it in Redis is removed
	ClockStepped Kind = "clock stepped" // Redis's clock was set, or stands still: leases may end early, or late; all are looked after
	LeaseLeaked  Kind = "lease leaked"  // a lease was forgotten without being given back
)

// Event is one thing that happened to a lock.
type Event struct {
	Kind   Kind
	Name   string
	Key    string // in Redis
	Token  string
	Fence  int64
	Holder Holder        // Refused, HolderLost: the other one
	Wait   time.Duration // Acquired, Refused, Repeated, Failed: how long it took
	Hold   time.Duration // what comes after Acquired: how long it has been held
	Err    error
}

// levels are those of the log; what is not here is for debugging.
var levels = map[Kind]slog.Level{
	Lost:         slog.LevelWarn,
	Unreleased:   slog.LevelWarn,
	NotRenewed:   slog.LevelWarn,
	HeldLong:     slog.LevelWarn,
	HolderLost:   slog.LevelWarn,
	ClockStepped: slog.LevelWarn,
	LeaseLeaked:  slog.LevelWarn,
}

func levelOf(kind Kind) slog.Level {
	if level, ok := levels[kind]; ok {
		return level
	}
	return slog.LevelDebug
}

// tell passes an event to the log and the observer.
func (k *Locker) tell(e Event) {
	k.config.observer(e)
	ctx, level := context.Background(), levelOf(e.Kind)
	if !k.config.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("lock", e.Name), slog.String("key", e.Key), slog.String("token", e.Token), slog.Int64("fence", e.Fence)}
	if e.Holder != (Holder{}) {
		attrs = append(attrs, slog.String("holder", e.Holder.String()))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Hold > 0 {
		attrs = append(attrs, slog.Duration("hold", e.Hold))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	k.config.logger.LogAttrs(ctx, level, "lock "+string(e.Kind), attrs...)
}
