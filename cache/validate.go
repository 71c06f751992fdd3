package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"time"

	"github.com/levee-cache/levee/rebuild"
)

const (
	longest      = 365 * 24 * time.Hour // the longest lifetime
	minLease     = 100 * time.Millisecond
	minLocal     = 64 << 10
	maxValueSize = 512 << 20 // of a Redis string
)

var word = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// checker gathers all faults of the options of one cache.
type checker struct{ faults []error }

func (c *checker) fault(field, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("Options.%s: "+format, append([]any{field}, args...)...))
}

// duration replaces zero by the default, and Off by zero where it is allowed.
func (c *checker) duration(field string, d *time.Duration, fallback time.Duration, off bool) {
	switch {
	case *d == 0:
		*d = fallback
	case *d == Off && off:
		*d = 0
	case *d < 0:
		c.fault(field, "%v is negative%s", *d, offHint(off))
	case *d > longest:
		c.fault(field, "%v is longer than a year", *d)
	}
}

func offHint(off bool) string {
	if off {
		return "; cache.Off (-1) switches it off"
	}
	return ""
}

// count does the same for sizes and numbers.
func (c *checker) count(field string, n *int64, fallback, least, most int64, off bool) {
	switch {
	case *n == 0:
		*n = fallback
	case *n == Off && off:
		*n = 0
	case *n < 0:
		c.fault(field, "%d is negative%s", *n, offHint(off))
	case *n < least:
		c.fault(field, "%d is below %d", *n, least)
	case *n > most:
		c.fault(field, "%d is above %d", *n, most)
	}
}

func (c *checker) word(field, s string) {
	if !word.MatchString(s) {
		c.fault(field, "%q may only have letters, digits, '.', '_' and '-'", s)
	}
}

// validate returns the options with their defaults in place, or every fault there is. Nothing
// else looks at what a user has set.
func (o Options) validate() (Options, error) {
	c := &checker{}
	switch {
	case o.TTL == 0:
		c.fault("TTL", "is required")
	default:
		c.duration("TTL", &o.TTL, 0, false)
	}
	ttl := max(o.TTL, 0)
	o.windows(c, ttl)
	c.duration("NegativeTTL", &o.NegativeTTL, min(ttl, 5*time.Second), true)
	c.duration("ErrorBackoff", &o.ErrorBackoff, 500*time.Millisecond, true)
	c.duration("LoadTimeout", &o.LoadTimeout, 30*time.Second, false)
	c.duration("WaitTimeout", &o.WaitTimeout, 0, true)
	c.duration("WaitFresh", &o.WaitFresh, 0, true)
	c.duration("Lease", &o.Lease, 3*time.Second, false)
	c.duration("LocalTTL", &o.LocalTTL, min(ttl, 30*time.Second), false)
	c.duration("StreamLife", &o.StreamLife, time.Hour, false)
	c.duration("HoldDown", &o.HoldDown, 0, true)
	c.duration("RetryDeletes", &o.RetryDeletes, ttl, true)
	c.duration("RedisTimeout", &o.RedisTimeout, 250*time.Millisecond, false)
	if o.Lease > 0 && o.Lease < minLease {
		c.fault("Lease", "%v is below %v: it could not be renewed in time", o.Lease, minLease)
	}
	o.numbers(c)
	o.texts(c)
	return o, errors.Join(c.faults...)
}

// windows reads the two stale windows. A default never stands in the way of what was set: the
// shorter StaleIfError shortens it.
func (o *Options) windows(c *checker, ttl time.Duration) {
	revalidate := min(ttl, 10*time.Second)
	if o.StaleIfError > 0 {
		revalidate = min(revalidate, o.StaleIfError)
	}
	c.duration("StaleWhileRevalidate", &o.StaleWhileRevalidate, revalidate, true)
	if o.StaleIfError > 0 && o.StaleIfError < o.StaleWhileRevalidate {
		c.fault("StaleIfError", "%v is below StaleWhileRevalidate, %v", o.StaleIfError, o.StaleWhileRevalidate)
	}
	c.duration("StaleIfError", &o.StaleIfError, o.StaleWhileRevalidate, true)
	o.StaleIfError = max(o.StaleIfError, o.StaleWhileRevalidate)
}

func (o *Options) numbers(c *checker) {
	switch j := o.TTLJitter; {
	case j == 0:
		o.TTLJitter = 0.10
	case j == Off:
		o.TTLJitter = 0
	case math.IsNaN(j) || j < 0 || j > 1:
		c.fault("TTLJitter", "%v is not between 0 and 1; cache.Off (-1) switches it off", j)
	}
	switch b := o.EarlyRefresh; {
	case b == 0:
		o.EarlyRefresh = 1
	case b == Off:
		o.EarlyRefresh = 0
	case math.IsNaN(b) || b < 0 || b > 100:
		c.fault("EarlyRefresh", "%v is not between 0 and 100; cache.Off (-1) switches it off", b)
	}
	c.count("StreamLength", &o.StreamLength, 10_000, 1, math.MaxInt32, true)
	c.count("LocalMaxBytes", &o.LocalMaxBytes, 64<<20, minLocal, math.MaxInt64, true)
	loads, size := int64(o.MaxConcurrentLoads), int64(o.MaxValueBytes)
	c.count("MaxConcurrentLoads", &loads, 256, 1, math.MaxInt32, false)
	c.count("MaxValueBytes", &size, 1<<20, 1, maxValueSize, false)
	o.MaxConcurrentLoads, o.MaxValueBytes = int(loads), int(size)
}

func (o *Options) texts(c *checker) {
	if o.Prefix == "" {
		o.Prefix = "levee1"
	}
	c.word("Prefix", o.Prefix)
	if o.Schema != "" {
		c.word("Schema", o.Schema)
	}
	if o.RedactError == nil {
		o.RedactError = error.Error
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// policy is what package rebuild needs of valid options.
func (o Options) policy(stream, topic string) rebuild.Policy {
	return rebuild.Policy{
		TTL:           o.TTL,
		Jitter:        o.TTLJitter,
		Stale:         o.StaleWhileRevalidate,
		IfError:       o.StaleIfError,
		NegativeTTL:   o.NegativeTTL,
		EarlyRefresh:  o.EarlyRefresh,
		Backoff:       o.ErrorBackoff,
		LoadTimeout:   o.LoadTimeout,
		WaitTimeout:   o.WaitTimeout,
		Lease:         o.Lease,
		LocalTTL:      o.LocalTTL,
		HoldDown:      o.HoldDown,
		RetryDeletes:  o.RetryDeletes,
		News:          rebuild.News{Stream: stream, Topic: topic, Length: o.StreamLength, Life: o.StreamLife},
		RedisTimeout:  o.RedisTimeout,
		MaxLoads:      o.MaxConcurrentLoads,
		MaxValueBytes: o.MaxValueBytes,
		Redact:        o.RedactError,
		Logger:        o.Logger,
	}
}
