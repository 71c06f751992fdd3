package cache

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// unused is a client that is never dialled with.
func unused(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func withRedis(c redis.UniversalClient) Options { return minute.with(setting{"Redis", c}) }

func TestB09_OneNameWithTwoTypesOnOneClientIsRefused(t *testing.T) {
	o := withRedis(unused(t))
	newCache(t, "user", always[string](1), o)
	_, err := New("user", always[string]("one"), o)
	saying(t, err, `levee: cache "user": "levee1:user" already holds values of type int on this client, not string`)
}

func TestWhatMakesOtherKeysMayHoldOtherTypes(t *testing.T) {
	o := withRedis(unused(t))
	newCache(t, "user", always[string](1), o)
	for situation, other := range map[string]Options{
		"another schema": o.with(setting{"Schema", "v2"}),
		"another prefix": o.with(setting{"Prefix", "shop"}),
		"another client": withRedis(unused(t)),
		"no Redis":       minute,
	} {
		t.Run(situation, func(t *testing.T) { newCache(t, "user", always[string]("one"), other) })
	}
	newCache(t, "another", always[string]("one"), o)
}

func TestOneNameWithOneTypeIsOneNodeForEachCache(t *testing.T) {
	o := withRedis(unused(t))
	newCache(t, "user", always[string](1), o)
	newCache(t, "user", always[int](2), o) // keys are text to everybody
}

func TestANameIsFreeOnceItsCachesAreClosed(t *testing.T) {
	o := withRedis(unused(t))
	first, err := New("user", always[string](1), o)
	must(t, err)
	second, err := New("user", always[string](1), o)
	must(t, err)
	must(t, first.Close())
	must(t, first.Close())
	_, err = New("user", always[string]("one"), o)
	saying(t, err, "already holds values of type int")
	must(t, second.Close())
	newCache(t, "user", always[string]("one"), o)
}

// isHeld tells whether a cache holds the link of client: then it does not change.
func isHeld(t *testing.T, client redis.UniversalClient) bool {
	t.Helper()
	first, err := link.Open(client)
	must(t, err)
	first.Close()
	second, err := link.Open(client)
	must(t, err)
	second.Close()
	return first == second
}

func TestNewClosesWhatItOpenedWhenItFails(t *testing.T) {
	client := unused(t)
	o := withRedis(client)
	fails := func(situation string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", situation)
		}
		equal(t, situation+": the link is held", isHeld(t, client), false)
	}
	_, err := New("user", always[string](1), o.with(setting{"TTL", 0}))
	fails("a bad option", err)
	_, err = New("a b", always[string](1), o)
	fails("a bad name", err)
	_, err = New[string, int]("user", nil, o)
	fails("no loader", err)
	_, err = New("user", always[bool](1), o)
	fails("a bad key type", err)
	_, err = New("user", always[string](1), o.with(setting{"Clone", true}))
	fails("no Clone", err)

	c, err := New("user", always[string](1), o)
	must(t, err)
	_, err = New("user", always[string]("one"), o)
	if err == nil {
		t.Error("a name with two types was accepted")
	}
	equal(t, "the link is held by the first", isHeld(t, client), true)
	must(t, c.Close())
	equal(t, "the link is held after it", isHeld(t, client), false)
}

func TestCloseNeverClosesTheUsersClient(t *testing.T) {
	client := unused(t)
	c, err := New("user", always[string](1), withRedis(client))
	must(t, err)
	must(t, c.Close())
	if err := client.Ping(t.Context()).Err(); err == nil || err.Error() == redis.ErrClosed.Error() {
		t.Errorf("ping: %v", err)
	}
}
