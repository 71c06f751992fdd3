package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// at is the value that so great a share of the others do not exceed.
func at[T ~int64 | ~float64](all []T, share float64) T {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(share*float64(len(sorted)-1)+0.5)]
}

func median[T ~int64 | ~float64](all []T) T { return at(all, 0.5) }

// brief writes a duration with three digits.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + brief(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// roundTrip is how long a PING takes, most of the time.
func roundTrip(s *stage, c *redis.Client) time.Duration {
	all := make([]time.Duration, 0, 100)
	for range cap(all) {
		began := time.Now()
		s.must(c.Ping(s.Context()).Err())
		all = append(all, time.Since(began))
	}
	return median(all)
}

// serverMicros is the time that the server has spent in these commands since its statistics were reset.
func serverMicros(ctx context.Context, c *redis.Client, commands ...string) (micros int64, err error) {
	text, err := c.Info(ctx, "commandstats").Result()
	return sumStats(text, "usec", commands), err
}

// commandCalls is how often the server has executed these commands since then.
func commandCalls(ctx context.Context, c *redis.Client, commands ...string) (calls int64, err error) {
	text, err := c.Info(ctx, "commandstats").Result()
	return sumStats(text, "calls", commands), err
}

// sumStats adds up a field of lines such as cmdstat_evalsha:calls=2,usec=61,usec_per_call=30.50,...
func sumStats(text, field string, commands []string) (sum int64) {
	for line := range strings.Lines(text) {
		name, fields, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if !slices.Contains(commands, name) {
			continue
		}
		_, rest, _ := strings.Cut(","+fields, ","+field+"=")
		number, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseInt(number, 10, 64)
		sum += n
	}
	return sum
}
