package link

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

const (
	tripAfter  = 3           // failures in a row that open the breaker
	probeEvery = time.Second // how long it stays open before one call probes
)

// breaker spares calls the timeout while Redis does not answer, and probes with one call at a
// time.
type breaker = gobreaker.TwoStepCircuitBreaker[struct{}]

func newBreaker() *breaker {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      probeEvery,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsSuccessful: answered,
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) }, // says nothing of Redis
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
