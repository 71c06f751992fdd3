package link

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

const (
	tripAfter  = 3                      // failures in a row that open the breaker,
	tripQuiet  = 500 * time.Millisecond // if nothing was answered for so long:
	probeEvery = time.Second            // how long it stays open before one call probes
)

// breaker spares calls the timeout while Redis does not answer, and probes with one call at a
// time. Many calls run at once, and a short stall of the process makes them all late; so it
// takes a silence of some length, too, to open it.
type breaker = gobreaker.TwoStepCircuitBreaker[struct{}]

func newBreaker(clock *Clock) *breaker {
	var heard atomic.Int64 // the Instant of the last answer
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     probeEvery,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= tripAfter && clock.Now()-Instant(heard.Load()) >= Instant(tripQuiet)
		},
		IsSuccessful: func(err error) bool {
			if !answered(err) {
				return false
			}
			heard.Store(int64(clock.Now()))
			return true
		},
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) }, // says nothing of Redis
	})
}

// answered tells whether the server answered, be it with an error: only silence and broken
// connections speak against it.
func answered(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) {
		return true
	}
	_, ok := errors.AsType[redis.Error](err)
	return ok
}
