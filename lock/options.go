package lock

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Off switches off what it is given for.
const Off time.Duration = -1

const (
	leastLease = 100 * time.Millisecond
	mostLease  = 24 * time.Hour
	maxName    = 1 << 10 // bytes
)

// Option changes a [Locker] when it is made.
type Option interface{ configure(*config) }

// LockOption changes one lock. Given to [New] it changes what all locks of the [Locker] begin with.
type LockOption interface {
	Option
	set(*settings)
}

type (
	lockerOption func(*config)
	lockOption   func(*settings)
)

func (o lockerOption) configure(c *config) { o(c) }
func (o lockOption) configure(c *config)   { o(&c.settings) }
func (o lockOption) set(s *settings)       { o(s) }

// config is what belongs to a Locker. It does not change after New.
type config struct {
	settings
	prefix   string
	window   time.Duration // of a Once; 0 for locks
	timeout  time.Duration
	logger   *slog.Logger
	observer func(Event)
}

// settings are of one lock. They do not change once they are made.
type settings struct {
	lease     time.Duration
	wait      time.Duration // negative: as long as the context allows
	fixed     bool
	maxHold   time.Duration
	warning   time.Duration
	label     string
	holder    any // the text of the field, as an argument
	reentrant bool
	barge     bool
	replicas  *replicas // nil: none is asked
}

// WithLease sets how long a lock is held without being renewed: the time for which a crash of its holder
// keeps the others out. From 100 ms to 24 h; 10 s if not given.
func WithLease(d time.Duration) LockOption {
	return lockOption(func(s *settings) { s.lease = d })
}

// WithWait bounds how long Lock waits, in addition to the context; then it returns [ErrWaitTimeout].
// With 0 it does not wait at all.
func WithWait(d time.Duration) LockOption {
	return lockOption(func(s *settings) { s.wait = d })
}

// WithoutRenewal lets the lease end by itself, however short or long it is. Else it is renewed until
// it is given back, or for [WithMaxHold]. A lock that is never given back is then a way to do something
// once in a while.
func WithoutRenewal() LockOption {
	return lockOption(func(s *settings) { s.fixed = true })
}

// WithMaxHold bounds how long a lock is renewed: 10 min if not given, [Off] for ever. Then its context ends
// with [ErrMaxHold].
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(s *settings) { s.maxHold = d })
}

// WithHoldWarning sets after which time a lock that is still held is worth a warning. If not given that is
// the length of the lease; [Off] for none. It comes with the next renewal.
func WithHoldWarning(d time.Duration) LockOption {
	return lockOption(func(s *settings) { s.warning = d })
}

// WithLabel says in Redis what the lock is held for. Host and process are there already; together they
// are cut at 64 bytes.
func WithLabel(label string) LockOption {
	return lockOption(func(s *settings) { s.label = label })
}

// WithReentrant lets a holder take its lock again: a call whose context is that of a lease of the same
// Locker and name, or made from it, gets it at once, without Redis. The lock is given back with the last of
// its leases.
func WithReentrant() LockOption {
	return lockOption(func(s *settings) { s.reentrant = true })
}

// WithBarge takes a lock that is free though others wait for it.
func WithBarge() LockOption {
	return lockOption(func(s *settings) { s.barge = true })
}

// WithPrefix sets what the keys begin with, and so what locks are common: lk: if not given, once: for a [Once].
func WithPrefix(prefix string) Option {
	return lockerOption(func(c *config) { c.prefix = prefix })
}

// WithWindow sets for how long a [Once] remembers what has run: 24 h if not given, from 1 s to a year. It must cover the
// time within which the same id may come again.
func WithWindow(d time.Duration) Option {
	return lockerOption(func(c *config) { c.window = d })
}

// WithRedisTimeout bounds one call of Redis, whatever the client's own timeouts are: 500 ms if not given.
func WithRedisTimeout(d time.Duration) Option {
	return lockerOption(func(c *config) { c.timeout = d })
}

// WithLogger logs acquires and releases at the level of debugging, and as warnings leases that were lost, locks
// that are held for long, and once a server that may evict locks. It is silent if not given.
func WithLogger(logger *slog.Logger) Option {
	return lockerOption(func(c *config) { c.logger = logger })
}

// WithObserver calls f with everything that happens to locks, for metrics. It is called by callers of the
// Locker and by its own goroutines, also at once, and must return soon.
func WithObserver(f func(Event)) Option {
	return lockerOption(func(c *config) { c.observer = f })
}

func newConfig(options []Option) (*config, error) {
	c := &config{
		settings: settings{lease: 10 * time.Second, wait: -1, maxHold: 10 * time.Minute},
		prefix:   "lk:",
		timeout:  500 * time.Millisecond,
		logger:   slog.New(slog.DiscardHandler),
		observer: func(Event) {},
	}
	for _, o := range options {
		o.configure(c)
	}
	return c, errors.Join(c.validate(), c.settings.complete())
}

// once tells whether it is that of a [Once].
func (c *config) once() bool { return c.window != 0 }

var prefixes = regexp.MustCompile(`^[A-Za-z0-9._:{}-]+$`)

func (c *config) validate() error {
	return errors.Join(
		unless(prefixes.MatchString(c.prefix), "WithPrefix: %q is not made of A-Z a-z 0-9 . _ : { } -", c.prefix),
		unless(c.timeout >= time.Millisecond, "WithRedisTimeout: %v is less than 1 ms", c.timeout),
		unless(c.logger != nil, "WithLogger: nil"),
		unless(c.observer != nil, "WithObserver: nil"))
}

// complete checks the settings and fills in what follows from others.
func (s *settings) complete() error {
	s.holder = holderOf(s.label)
	return errors.Join(
		unless(s.lease >= leastLease && s.lease <= mostLease, "WithLease: %v is not from %v to %v", s.lease, leastLease, mostLease),
		unless(s.wait >= -1, "WithWait: %v is negative", s.wait),
		unless(s.maxHold > 0 || s.maxHold == Off, "WithMaxHold: %v is neither positive nor Off", s.maxHold),
		unless(s.warning >= 0 || s.warning == Off, "WithHoldWarning: %v is negative", s.warning),
		s.replicas.validate(s.lease))
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("lock: "+format, args...)
}

// with are the settings of one lock.
func (s *settings) with(options []LockOption) (*settings, error) {
	if len(options) == 0 {
		return s, nil
	}
	own := *s
	for _, o := range options {
		o.set(&own)
	}
	return &own, own.complete()
}

// warnAfter is when a hold is worth a warning; negative: never.
func (s *settings) warnAfter() time.Duration {
	if s.warning == 0 {
		return s.lease
	}
	return s.warning
}

// early is how long before the end of its lease a holder is told to stop: the part of the server's clock that
// is rounded off is in it.
func (s *settings) early() time.Duration {
	return min(s.lease/10, 500*time.Millisecond) + grain
}

// grain is how exactly the server tells when a lease ends.
const grain = 2 * time.Millisecond

func checkName(name string) error {
	return errors.Join(
		unless(name != "", "the name is empty"),
		unless(len(name) <= maxName, "the name is %d bytes long, the most is %d", len(name), maxName))
}
