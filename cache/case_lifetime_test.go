package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// small are lifetimes that are cut to nothing easily, and what Redis is to be told.
var small = []struct{ ttl, stored time.Duration }{
	{time.Nanosecond, time.Millisecond},
	{500 * time.Microsecond, time.Millisecond},
	{999 * time.Microsecond, time.Millisecond},
	{time.Millisecond, time.Millisecond},
	{1500 * time.Microsecond, 2 * time.Millisecond},
	{999 * time.Millisecond, 999 * time.Millisecond},
	{1500 * time.Millisecond, 1500 * time.Millisecond},
}

// short are settings with one lifetime everywhere and nothing stale.
func short(ttl time.Duration) cache.Options {
	o := settings()
	o.TTL, o.NegativeTTL, o.LocalTTL, o.ErrorBackoff = ttl, ttl, ttl, ttl
	o.StaleWhileRevalidate, o.StaleIfError = cache.Off, cache.Off
	return o
}

// fate lets a key's name say what its load comes to.
func fate(_ context.Context, key string, _ int) error {
	switch {
	case strings.HasPrefix(key, "absent"):
		return cache.ErrNotFound
	case strings.HasPrefix(key, "failing"):
		return errors.New("no route to the database")
	}
	return nil
}

func TestB92_SmallLifetimesAreRoundedUpToAMillisecond(t *testing.T) {
	for _, tc := range small {
		t.Run(tc.ttl.String(), func(t *testing.T) {
			inBubble(t, 1, short(tc.ttl), func(t *testing.T, f *fleet) {
				f.query = fate
				n := f.nodes[0]
				left := func(key string) time.Duration { return f.lifetimes()[n.RedisKey(key)] }

				gets(t, n, "k", value("k", 1))
				equal(t, "left of a value", left("k"), tc.stored)
				must(t, n.Set(t.Context(), "set", "v"))
				equal(t, "left of a value that was set", left("set"), tc.stored)
				if _, err := n.Get(t.Context(), "absent"); !errors.Is(err, cache.ErrNotFound) {
					t.Error(err)
				}
				equal(t, "left of a not found", left("absent"), tc.stored)
				if _, err := n.Get(t.Context(), "failing"); err == nil {
					t.Error("a failed load has no error")
				}
				if l := left("failing"); l < time.Millisecond || l > 2*tc.stored {
					t.Errorf("left of a failure: %v, want twice its back-off", l)
				}

				time.Sleep(tc.stored / 2)
				must(t, n.Expire(t.Context(), "k", "set"))
				for key, left := range f.lifetimes() { // also of what remains after half of it
					if left < 0 || left > 2*tc.stored {
						t.Errorf("left of %q: %v", key, left)
					}
				}
				time.Sleep(tc.stored)
				gets(t, n, "k", value("k", 1))
				equal(t, "loads", f.queries("k"), 2)
			})
		})
	}
}

func TestB92_ARealServerTakesSmallLifetimes(t *testing.T) {
	s := redistest.Shared(t)
	for _, tc := range small {
		t.Run(tc.ttl.String(), func(t *testing.T) {
			o := short(tc.ttl)
			o.RedisTimeout = 5 * time.Second
			f := onServer(t, s, 1, o)
			f.query = fate
			for i := range 20 {
				key := strconv.Itoa(i)
				gets(t, f.nodes[0], key, value(key, 1))
				must(t, f.nodes[0].Set(t.Context(), "set"+key, "v"))
				_, _ = f.nodes[0].Get(t.Context(), "absent"+key)
				_, _ = f.nodes[0].Get(t.Context(), "failing"+key)
			}
			for key, left := range f.lifetimes() {
				if left < 0 {
					t.Errorf("%q has no lifetime", key)
				}
			}
			equal(t, "calls without Redis", f.nodes[0].Stats().RedisErrors, 0)
		})
	}
}

func TestB94_ARealServerKeepsAYearWithAllWindowsOnTop(t *testing.T) {
	const year = 365 * 24 * time.Hour
	o := settings()
	o.TTL, o.StaleWhileRevalidate, o.StaleIfError, o.NegativeTTL = year, year, year, year
	o.TTLJitter, o.ErrorBackoff, o.LoadTimeout, o.LocalTTL = 1, year, year, year
	o.RedisTimeout = 5 * time.Second
	f := onServer(t, redistest.Shared(t), 1, o)
	f.query = fate
	n := f.nodes[0]
	gets(t, n, "k", value("k", 1))
	must(t, n.Set(t.Context(), "set", "v"))
	_, _ = n.Get(t.Context(), "absent")
	_, _ = n.Get(t.Context(), "failing")
	equal(t, "keys", len(f.keys()), 4)
	for key, left := range f.lifetimes() {
		if left < year-time.Minute || left > 20*year { // that of a failure is twice its back-off
			t.Errorf("left of %q: %v", key, left)
		}
	}
	equal(t, "calls without Redis", n.Stats().RedisErrors, 0)
}

func TestB95_JitterStaysWithinItsBandInRedis(t *testing.T) {
	for _, jitter := range []float64{cache.Off, 0.1, 1} {
		for _, ttl := range []time.Duration{time.Nanosecond, 999 * time.Millisecond, time.Hour} {
			t.Run(fmt.Sprint(jitter, " of ", ttl), func(t *testing.T) {
				o := short(ttl)
				o.TTLJitter = jitter
				inBubble(t, 1, o, func(t *testing.T, f *fleet) {
					f.query = fate
					for i := range 10 {
						key := strconv.Itoa(i)
						gets(t, f.nodes[0], key, value(key, 1))
						_, _ = f.nodes[0].Get(t.Context(), "failing"+key)
					}
					least := time.Duration((1 - max(0, jitter)) * float64(ttl)).Truncate(time.Millisecond)
					most := max(time.Millisecond, ttl)
					equal(t, "keys", len(f.keys()), 20)
					for key, left := range f.lifetimes() {
						least, most := max(time.Millisecond, least), most
						if strings.Contains(key, "failing") { // twice a back-off that a fifth may be taken from
							least, most = max(time.Millisecond, 8*ttl/5).Truncate(time.Millisecond), 2*most
						}
						if left < least || left > most {
							t.Errorf("left of %q: %v, want %v to %v", key, left, least, most)
						}
					}
				})
			})
		}
	}
}
