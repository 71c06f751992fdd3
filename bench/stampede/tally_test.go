package main

import (
	"testing"
	"time"
)

// books plays loads against one key with a TTL of one second; times are milliseconds.
type books struct{ tally }

func (b *books) starts(ms ...int) {
	for _, at := range ms {
		b.begin(time.UnixMilli(int64(at)), time.Second)
	}
}

func (b *books) ends(ms ...int) {
	for _, at := range ms {
		b.end(time.UnixMilli(int64(at)), true)
	}
}

func (b *books) want(t *testing.T, loads, expiries int64) {
	t.Helper()
	if b.loads != loads || b.expiries != expiries {
		t.Errorf("%d loads for %d expiries, want %d for %d", b.loads, b.expiries, loads, expiries)
	}
}

func TestTheFirstLoadOfAKeyOpensAnExpiry(t *testing.T) {
	var b books
	b.starts(5000)
	b.want(t, 1, 1)
}

func TestManyLoadsForOneExpiryCountAsMany(t *testing.T) {
	var b books
	b.starts(5000, 5001, 5010)
	b.ends(5050)
	b.starts(5051) // missed in the cache before the first had stored its value
	b.ends(5052, 5060, 5100)
	b.want(t, 4, 1)
	if b.peak != 3 {
		t.Errorf("at most %d at once, want 3", b.peak)
	}
}

func TestOneLoadForEachExpiryCountsAsOne(t *testing.T) {
	var b books
	for _, at := range []int{5000, 6050, 7101, 8151} {
		b.starts(at)
		b.ends(at + 50)
	}
	b.want(t, 4, 4)
	if b.perExpiry() != 1 || b.peak != 1 {
		t.Errorf("%v per expiry, %d at once, want 1 and 1", b.perExpiry(), b.peak)
	}
}

func TestALoadBeforeTheValuePassedItsTTLOpensNoExpiry(t *testing.T) {
	var b books
	b.starts(5000)
	b.ends(5050)
	b.starts(5900)
	b.ends(5950)
	b.want(t, 2, 1)
	b.starts(6050) // would be due after the first value, but the second is the last
	b.ends(6100)
	b.want(t, 3, 1)
}

func TestTheNextExpiryCountsFromTheLastOfSeveralLoads(t *testing.T) {
	var b books
	b.starts(5000, 5010)
	b.ends(5050, 5800) // one of them queued for long
	b.starts(6100)
	b.want(t, 3, 1)
	b.ends(6150)
	b.starts(7150)
	b.want(t, 4, 2)
}

func TestALoadRepeatedAfterAFailureIsOneTooMany(t *testing.T) {
	var b books
	b.starts(5000)
	b.end(time.UnixMilli(5050), false)
	b.starts(5060)
	b.want(t, 2, 1)
}

func TestRedisMayLetAValueExpireOneMillisecondEarly(t *testing.T) {
	var b books
	b.starts(5000)
	b.ends(5050)
	b.starts(6049)
	b.want(t, 2, 2)
}

func TestAResetForgetsTheCountButNotTheValue(t *testing.T) {
	var b books
	b.starts(5000)
	b.ends(5050)
	b.reset()
	b.starts(5060)
	b.want(t, 1, 0)
	if b.perExpiry() != 1 {
		t.Errorf("%v per expiry, want the load without an expiry to show", b.perExpiry())
	}
	b.ends(5110)
	b.starts(6111)
	b.want(t, 2, 1)
}
