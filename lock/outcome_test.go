package lock

import (
	"math"
	"strings"
	"testing"
	"time"
)

// stubborn cannot be encoded, in a way of its own.
type stubborn struct{ Panics bool }

func (s stubborn) MarshalJSON() ([]byte, error) {
	if s.Panics {
		panic("at the disco")
	}
	return nil, errTest
}

func TestAResultThatCannotBeKeptIsNotRunAgain(t *testing.T) {
	for situation, c := range map[string]struct {
		v   any
		why string
	}{
		"too long":  {strings.Repeat("x", maxResult-1), "1048577 bytes"},
		"no number": {math.Inf(1), "unsupported value"},
		"its error": {stubborn{}, errTest.Error()},
		"its panic": {stubborn{true}, "panicked: at the disco"},
	} {
		t.Run(situation, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				a, b := onceOf[any](s), onceOf[any](s)
				v, err := a.does("x", 0, c.v, nil)
				notStored(t, "runner", result[any]{v, err}, c.v, ErrNotStored)
				names(t, err, c.why)
				names(t, b.refuses("repeat", ErrNotStored), c.why)
				must(t, b.Forget(t.Context(), "x"))
				b.gets("forgotten", "short")
				a.repeats("then", "short")
			})
		})
	}
	bubble(t, func(t *testing.T, s *server) {
		longest := strings.Repeat("x", maxResult-2)
		onceOf[string](s).gets("the longest", longest)
		onceOf[string](s).repeats("the longest", longest)
	})
}

func TestAResultOfAnotherTypeIsAConflictAndIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		onceOf[payment](s).gets("first", payment{1, "paid"})
		n := onceOf[struct{ Order string }](s)
		err := n.refuses("another type", ErrConflict)
		is(t, "another type", err, ErrConflict)
		names(t, err, `once "x"`)
		names(t, err, `key "lk:x"`)
		half := onceOf[struct {
			Order int64
			State int
		}](s)
		half.refuses("half of it fits", ErrConflict)
		onceOf[payment](s).repeats("then", payment{1, "paid"})

		raw := []byte(s.raw("x"))
		raw[lockSize] = 'Z'
		must(t, s.Mini().Set("lk:x", string(raw)))
		names(t, onceOf[payment](s).refuses("another kind", ErrConflict), `key "lk:x"`)
	})
}

func TestT32LocksNeverTouchWhatAOnceHasRun(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := onceOf[int](s)
		a.gets("first", 1)
		raw, k := s.raw("x"), s.locker()
		_, err := k.TryLock(t.Context(), "x")
		is(t, "try", err, ErrConflict)
		_, err = k.Lock(t.Context(), "x")
		is(t, "lock", err, ErrConflict)
		_, err = k.Break(t.Context(), "x", 1)
		is(t, "break", err, ErrConflict)
		time.Sleep(time.Minute) // of what is cleared up
		equal(t, "in Redis", s.raw("x"), raw)
		must(t, s.Mini().Set("lk:x", "theirs"))
		is(t, "what is nobody's", a.refuses("theirs", ErrConflict), ErrConflict)
		is(t, "to forget it", a.Forget(t.Context(), "x"), ErrConflict)
		equal(t, "what is nobody's, in Redis", s.raw("x"), "theirs")
	})
}
