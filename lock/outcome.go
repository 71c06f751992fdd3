package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// An outcome is what a Once stores of a run that has succeeded: a letter, and the result, or why there is none.
const (
	outcomeJSON = 'j'
	outcomeNone = '-'
)

const (
	maxResult = 1 << 20 // bytes of JSON
	maxReason = 1 << 10 // bytes
)

// outcomeOf is that of a run whose result is v. One that cannot be stored has an outcome all the same: the run has had its effects.
func outcomeOf(v any) (outcome string, unfit error) {
	text, err := marshal(v)
	switch {
	case err != nil:
		unfit = fmt.Errorf("it cannot be encoded: %w", err)
	case len(text) > maxResult:
		unfit = fmt.Errorf("it is %d bytes long, the most is %d", len(text), maxResult)
	default:
		return string(outcomeJSON) + string(text), nil
	}
	reason := unfit.Error()
	return string(outcomeNone) + reason[:min(len(reason), maxReason)], unfit
}

// marshal makes an error of a panic in a value's own method: the run has succeeded before.
func marshal(v any) (text []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("MarshalJSON panicked: %v", p)
		}
	}()
	return json.Marshal(v)
}

func readOutcome[V any](id, key, outcome string) (V, error) {
	var v, none V
	switch outcome[0] {
	case outcomeNone:
		return none, &NotStoredError{ID: id, Err: errors.New(outcome[1:])}
	case outcomeJSON:
		if err := json.Unmarshal([]byte(outcome[1:]), &v); err != nil {
			return none, fmt.Errorf("once %q: what it has returned is not a %T: %w: %w", id, v, conflict(key), err)
		}
		return v, nil
	}
	return none, fmt.Errorf("once %q: what it has returned is of kind %q, which is not known: %w", id, outcome[0], conflict(key))
}

// doneError ends an attempt to get a lock whose id is done.
type doneError struct{ outcome string }

func (*doneError) Error() string { return "lock: it is done already" }

func isDone(err error) bool {
	_, ok := errors.AsType[*doneError](err)
	return ok
}

// repeated ends an attempt with what was stored.
func (k *Locker) repeated(w asking, began link.Instant, a answer) error {
	if w.doubtful() {
		k.abandon(w.name, w.attempt)
	}
	k.tell(Event{Kind: Repeated, Name: w.name, Key: w.key, Token: w.token, Wait: k.since(began)})
	return &doneError{a.text(0)}
}

// store ends the hold with its outcome, which takes the place of the lock. Redis alone decides whether it may, however late it is. Where
// Redis is away it is tried behind the caller's back for as long as the lease may live.
func (h *hold) store(ctx context.Context, left time.Duration) error {
	err := h.storeNow(ctx)
	if err == nil || errors.Is(err, ErrLost) {
		h.locker.tell(h.event(Released, err))
		return err
	}
	h.locker.tell(h.event(Unreleased, err))
	h.insist(left, func(ctx context.Context) error {
		err := h.storeNow(ctx)
		if errors.Is(err, ErrLost) {
			return nil
		}
		return err
	})
	return err
}

func (h *hold) storeNow(ctx context.Context) error {
	k, b := h.locker, link.Budget{Left: releasePatience}
	a, err := k.run(ctx, &b, link.Urgent, k.scriptCall(h.key, scripts.store, h.Token, millis(k.config.window), h.outcome))
	switch {
	case isConflict(err):
		return h.explain(&LostError{Reason: Overwritten})
	case err == nil && a.status != statusDone:
		return h.explain(h.lostFor(a))
	}
	return err
}
