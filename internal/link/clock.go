package link

import (
	"sync"
	"time"
)

// Instant is a point on a node's monotonic clock: nanoseconds since its Clock was made.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Clock reads the node's monotonic clock and knows, per master, how Redis's clock stands
// to it. Wall clocks take no part: nodes whose wall clocks are off behave the same.
type Clock struct {
	born time.Time
	// Wall is the wall clock in ns, for the only question that it answers: whether the machine has slept.
	// It is set before the first use.
	Wall func() int64

	mu      sync.RWMutex // guards offsets
	offsets map[string]offset
}

// offset is server time minus Instant, known to lie in low..high since the round trip that
// measured it began and ended.
type offset struct {
	low, high int64
	at        Instant
	stepped   time.Duration // by what has been noticed and not told yet: a clock that stands still steps back with each answer
}

const (
	offsetLife = 30 * time.Second // an older sample is not trusted: clocks drift
	leastStep  = 50 * time.Millisecond
	driftShare = 100 // clocks run within one part in this many of each other
)

// NewClock returns a clock that starts at zero.
func NewClock() *Clock {
	return &Clock{born: time.Now(), Wall: wall, offsets: map[string]offset{}}
}

func wall() int64 { return time.Now().UnixNano() }

// Now is the current instant.
func (c *Clock) Now() Instant { return Instant(time.Since(c.born)) }

// Until is the time left to i; negative after it.
func (c *Clock) Until(i Instant) time.Duration { return time.Duration(i - c.Now()) }

// Observe learns from an answer of master that was sent for at sent, came at received, and
// carried the server's time in microseconds. It returns by how much the server's clock has been set since
// the answers that were believed so far, at the least; 0 if that is next to nothing.
func (c *Clock) Observe(master string, sent, received Instant, serverMicros int64) (step time.Duration) {
	s := serverMicros * 1000
	sample := offset{low: s - int64(received), high: s - int64(sent) + 1000, at: received}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.offsets[master]
	set := time.Duration(0)
	if known {
		set = old.step(sample)
		sample.stepped = old.stepped + set
	}
	if known && set == 0 && !old.yields(sample) {
		return 0
	}
	if sample.stepped.Abs() >= leastStep {
		step, sample.stepped = sample.stepped, 0
	}
	c.offsets[master] = sample
	return step
}

// yields tells whether a newer sample is the better one: it is tighter, or the old one has aged.
func (o offset) yields(sample offset) bool {
	return sample.age(o) > int64(offsetLife) || sample.high-sample.low <= o.high-o.low+2*sample.age(o)/driftShare
}

// step is by how much the two contradict each other since one of the clocks was set.
func (o offset) step(sample offset) time.Duration {
	slack := sample.age(o) / driftShare
	return time.Duration(max(sample.low-o.high-slack, 0) + min(sample.high-o.low+slack, 0))
}

// age is how much younger o is than an older one; answers may be reported in another order.
func (o offset) age(older offset) int64 { return max(int64(o.at-older.at), 0) }

// ServerMicros is the time of master's clock at i, by the middle of what is known; ok is
// false if no answer of master has been observed lately.
func (c *Clock) ServerMicros(master string, i Instant) (micros int64, ok bool) {
	c.mu.RLock()
	o, ok := c.offsets[master]
	c.mu.RUnlock()
	return (int64(i) + (o.low+o.high)/2) / 1000, ok && i-o.at <= Instant(offsetLife)
}

// Span is when master's clock shows micros: not before earliest, and by latest; ok is false if no
// answer of master has been observed lately.
func (c *Clock) Span(master string, micros int64) (earliest, latest Instant, ok bool) {
	c.mu.RLock()
	o, ok := c.offsets[master]
	c.mu.RUnlock()
	age := max(c.Now()-o.at, 0)
	slack := int64(age) / driftShare
	return Instant(micros*1000 - o.high - slack), Instant(micros*1000 - o.low + slack), ok && age <= Instant(offsetLife)
}

// SleepUntil returns at i.
func (c *Clock) SleepUntil(i Instant) {
	if d := c.Until(i); d > 0 {
		time.Sleep(d)
	}
}
