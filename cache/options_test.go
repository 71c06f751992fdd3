package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/rebuild"
)

// figures are the options that can be compared.
type figures struct {
	TTL, StaleWhileRevalidate, StaleIfError, NegativeTTL, ErrorBackoff, LoadTimeout, WaitTimeout,
	WaitFresh, Lease, LocalTTL, RedisTimeout, StreamLife, HoldDown, RetryDeletes time.Duration
	TTLJitter, EarlyRefresh           float64
	LocalMaxBytes, StreamLength       int64
	MaxConcurrentLoads, MaxValueBytes int
	Prefix, Schema                    string
}

func figuresOf(o Options) figures {
	return figures{o.TTL, o.StaleWhileRevalidate, o.StaleIfError, o.NegativeTTL, o.ErrorBackoff, o.LoadTimeout,
		o.WaitTimeout, o.WaitFresh, o.Lease, o.LocalTTL, o.RedisTimeout, o.StreamLife, o.HoldDown, o.RetryDeletes, o.TTLJitter, o.EarlyRefresh, o.LocalMaxBytes, o.StreamLength,
		o.MaxConcurrentLoads, o.MaxValueBytes, o.Prefix, o.Schema}
}

func TestTheDefaultsAreAsDocumented(t *testing.T) {
	long := figures{
		TTL: time.Hour, TTLJitter: 0.10, EarlyRefresh: 1,
		StaleWhileRevalidate: 10 * time.Second, StaleIfError: 10 * time.Second,
		NegativeTTL: 5 * time.Second, ErrorBackoff: 500 * time.Millisecond,
		LoadTimeout: 30 * time.Second, WaitTimeout: 0, WaitFresh: 0,
		Lease: 3 * time.Second, LocalTTL: 30 * time.Second, RedisTimeout: 250 * time.Millisecond,
		LocalMaxBytes: 64 << 20, MaxConcurrentLoads: 256, MaxValueBytes: 1 << 20, Prefix: "levee1",
		StreamLength: 10_000, StreamLife: time.Hour, HoldDown: 0, RetryDeletes: time.Hour,
	}
	short := long
	short.TTL, short.StaleWhileRevalidate, short.StaleIfError = time.Second, time.Second, time.Second
	short.NegativeTTL, short.LocalTTL, short.RetryDeletes = time.Second, time.Second, time.Second
	for _, want := range []figures{long, short} {
		o, err := Options{TTL: want.TTL}.validate()
		must(t, err)
		equal(t, "defaults", figuresOf(o), want)
		if o.Logger == nil || o.RedactError(errors.New("why")) != "why" {
			t.Error("no logger, or the text of an error is not its own")
		}
	}
}

func TestWhatIsSetStays(t *testing.T) {
	set := figures{
		TTL: 7 * time.Second, TTLJitter: 0.5, StaleWhileRevalidate: 11 * time.Second, StaleIfError: 13 * time.Second,
		NegativeTTL: 17 * time.Second, ErrorBackoff: 19 * time.Second, LoadTimeout: 23 * time.Second,
		WaitTimeout: 29 * time.Second, WaitFresh: 43 * time.Second, EarlyRefresh: 2.5, Lease: 31 * time.Second, LocalTTL: 37 * time.Second, RedisTimeout: 41 * time.Second,
		LocalMaxBytes: 1 << 20, MaxConcurrentLoads: 3, MaxValueBytes: 5, Prefix: "Pre.fix_1-", Schema: "s2",
		StreamLength: 47, StreamLife: 53 * time.Second, HoldDown: 59 * time.Second, RetryDeletes: 61 * time.Second,
	}
	o := Options{
		TTL: set.TTL, TTLJitter: set.TTLJitter, StaleWhileRevalidate: set.StaleWhileRevalidate, StaleIfError: set.StaleIfError,
		NegativeTTL: set.NegativeTTL, ErrorBackoff: set.ErrorBackoff, LoadTimeout: set.LoadTimeout, WaitTimeout: set.WaitTimeout,
		WaitFresh: set.WaitFresh, EarlyRefresh: set.EarlyRefresh, Lease: set.Lease, LocalTTL: set.LocalTTL, RedisTimeout: set.RedisTimeout, LocalMaxBytes: set.LocalMaxBytes,
		MaxConcurrentLoads: set.MaxConcurrentLoads, MaxValueBytes: set.MaxValueBytes, Prefix: set.Prefix, Schema: set.Schema,
		StreamLength: set.StreamLength, StreamLife: set.StreamLife, HoldDown: set.HoldDown, RetryDeletes: set.RetryDeletes,
		RedactError: func(error) string { return "redacted" },
	}
	valid, err := o.validate()
	must(t, err)
	equal(t, "options", figuresOf(valid), set)
	equal(t, "text of an error", valid.RedactError(errors.New("why")), "redacted")
}

// setting is one field with one value.
type setting struct {
	field string
	value any
}

// with returns o with the settings made.
func (o Options) with(settings ...setting) Options {
	for _, s := range settings {
		f := reflect.ValueOf(&o).Elem().FieldByName(s.field)
		f.Set(reflect.ValueOf(s.value).Convert(f.Type()))
	}
	return o
}

func TestOffSwitchesOff(t *testing.T) {
	for _, field := range []string{"TTLJitter", "EarlyRefresh", "StaleWhileRevalidate", "NegativeTTL", "ErrorBackoff", "WaitTimeout", "WaitFresh", "LocalMaxBytes",
		"StreamLength", "HoldDown", "RetryDeletes"} {
		t.Run(field, func(t *testing.T) {
			o, err := minute.with(setting{field, Off}).validate()
			must(t, err)
			if v := reflect.ValueOf(o).FieldByName(field); !v.IsZero() {
				t.Errorf("off is %v", v)
			}
		})
	}
}

// TestEarlyRefreshMayBeAnythingUpToAHundred: also less than the optimum, and the limit itself.
func TestEarlyRefreshMayBeAnythingUpToAHundred(t *testing.T) {
	for _, beta := range []float64{math.SmallestNonzeroFloat64, 0.5, 1, 100} {
		o, err := minute.with(setting{"EarlyRefresh", beta}).validate()
		must(t, err)
		equal(t, "EarlyRefresh", o.EarlyRefresh, beta)
		equal(t, "in the policy", o.policy("s", "t").EarlyRefresh, beta)
	}
}

func TestStaleIfErrorIsNeverShorterThanStaleWhileRevalidate(t *testing.T) {
	const swr = 20 * time.Second
	for _, tc := range []struct {
		situation string
		settings  []setting
		want      time.Duration
	}{
		{"by default", []setting{{"StaleWhileRevalidate", swr}}, swr},
		{"off", []setting{{"StaleWhileRevalidate", swr}, {"StaleIfError", Off}}, swr},
		{"both off", []setting{{"StaleWhileRevalidate", Off}, {"StaleIfError", Off}}, 0},
		{"only the other off", []setting{{"StaleWhileRevalidate", Off}}, 0},
		{"longer", []setting{{"StaleWhileRevalidate", swr}, {"StaleIfError", time.Hour}}, time.Hour},
		{"on its own", []setting{{"StaleWhileRevalidate", Off}, {"StaleIfError", time.Hour}}, time.Hour},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			o, err := minute.with(tc.settings...).validate()
			must(t, err)
			equal(t, "StaleIfError", o.StaleIfError, tc.want)
		})
	}
	_, err := minute.with(setting{"StaleWhileRevalidate", swr}, setting{"StaleIfError", swr - 1}).validate()
	saying(t, err, "Options.StaleIfError", "below StaleWhileRevalidate, 20s")
}

func TestADefaultGivesWayToAShorterStaleIfError(t *testing.T) {
	o, err := minute.with(setting{"StaleIfError", 5 * time.Second}).validate()
	must(t, err)
	equal(t, "StaleIfError", o.StaleIfError, 5*time.Second)
	equal(t, "StaleWhileRevalidate", o.StaleWhileRevalidate, 5*time.Second)
}

var durations = []string{"TTL", "StaleWhileRevalidate", "StaleIfError", "NegativeTTL", "ErrorBackoff", "LoadTimeout", "WaitTimeout", "WaitFresh", "Lease", "LocalTTL", "RedisTimeout",
	"StreamLife", "HoldDown", "RetryDeletes"}

var faults = []struct {
	setting
	says string
}{
	{setting{"TTL", time.Duration(0)}, "is required"},
	{setting{"TTL", Off}, "is negative"},
	{setting{"TTL", -time.Second}, "-1s is negative"},
	{setting{"TTLJitter", 1.5}, "1.5 is not between 0 and 1; cache.Off (-1) switches it off"},
	{setting{"TTLJitter", -0.1}, "is not between 0 and 1"},
	{setting{"TTLJitter", math.NaN()}, "is not between 0 and 1"},
	{setting{"TTLJitter", math.Inf(1)}, "is not between 0 and 1"},
	{setting{"EarlyRefresh", 100.5}, "100.5 is not between 0 and 100; cache.Off (-1) switches it off"},
	{setting{"EarlyRefresh", -0.1}, "is not between 0 and 100"},
	{setting{"EarlyRefresh", -2}, "is not between 0 and 100"},
	{setting{"EarlyRefresh", math.NaN()}, "NaN is not between 0 and 100"},
	{setting{"EarlyRefresh", math.Inf(1)}, "is not between 0 and 100"},
	{setting{"EarlyRefresh", math.Inf(-1)}, "is not between 0 and 100"},
	{setting{"StaleWhileRevalidate", -2 * time.Second}, "-2s is negative; cache.Off (-1) switches it off"},
	{setting{"StaleIfError", -2}, "is negative; cache.Off (-1) switches it off"},
	{setting{"NegativeTTL", -2}, "is negative; cache.Off (-1) switches it off"},
	{setting{"ErrorBackoff", -2}, "is negative; cache.Off (-1) switches it off"},
	{setting{"LoadTimeout", Off}, "is negative"},
	{setting{"WaitTimeout", -2}, "is negative; cache.Off (-1) switches it off"},
	{setting{"WaitFresh", -2}, "is negative; cache.Off (-1) switches it off"},
	{setting{"WaitFresh", -time.Second}, "-1s is negative; cache.Off (-1) switches it off"},
	{setting{"Lease", Off}, "is negative"},
	{setting{"Lease", 99 * time.Millisecond}, "99ms is below 100ms"},
	{setting{"LocalTTL", Off}, "is negative"},
	{setting{"RedisTimeout", Off}, "is negative"},
	{setting{"StreamLength", -2}, "-2 is negative; cache.Off (-1) switches it off"},
	{setting{"StreamLength", math.MaxInt32 + 1}, "is above"},
	{setting{"StreamLife", Off}, "is negative"},
	{setting{"HoldDown", -2}, "is negative; cache.Off (-1) switches it off"},
	{setting{"RetryDeletes", -2}, "is negative; cache.Off (-1) switches it off"},
	{setting{"LocalMaxBytes", -2}, "-2 is negative; cache.Off (-1) switches it off"},
	{setting{"LocalMaxBytes", 64<<10 - 1}, "65535 is below 65536"},
	{setting{"MaxConcurrentLoads", Off}, "-1 is negative"},
	{setting{"MaxConcurrentLoads", math.MaxInt32 + 1}, "is above"},
	{setting{"MaxValueBytes", Off}, "-1 is negative"},
	{setting{"MaxValueBytes", 512<<20 + 1}, "is above"},
	{setting{"Prefix", "a b"}, `"a b" may only have letters`},
	{setting{"Prefix", "a:b"}, `"a:b" may only have letters`},
	{setting{"Prefix", "a\n"}, `"a\n" may only have letters`},
	{setting{"Schema", "a@b"}, `"a@b" may only have letters`},
	{setting{"Schema", "a#"}, `"a#" may only have letters`},
}

func TestEveryFaultNamesItsField(t *testing.T) {
	for _, tc := range faults {
		t.Run(fmt.Sprint(tc.field, " ", tc.value), func(t *testing.T) {
			_, err := minute.with(tc.setting).validate()
			saying(t, err, "Options."+tc.field+": ", tc.says)
			if strings.Count(err.Error(), "Options.") != 1 {
				t.Errorf("one fault, more than one message: %v", err)
			}
		})
	}
}

func TestAllFaultsComeInOneError(t *testing.T) {
	o := Options{Clone: true, Redis: (*redis.Client)(nil)}
	named := map[string]bool{}
	for _, f := range faults {
		if !named[f.field] {
			o = o.with(f.setting)
		}
		named[f.field] = true
	}
	c, err := New[struct{ A int }, int]("no good", nil, o)
	if c != nil {
		t.Error("a cache was made all the same")
	}
	for field := range named {
		saying(t, err, "Options."+field+": ")
	}
	saying(t, err, `levee: cache "no good"`, "the name may only have", "the loader is nil", "Options.Clone: int has no method",
		"Options.Redis: client is a nil *redis.Client", "key type struct { A int }")
}

func TestNamesAreRestricted(t *testing.T) {
	for _, name := range []string{"", " ", "a:b", "a@b", "a#b", "ä", "a\x00", "user\n", "a/b", "{a}"} {
		if _, err := New(name, always[string](1), minute); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	newCache(t, "A.b_c-9", always[string](1), minute)
}

func TestALoaderIsRequired(t *testing.T) {
	for situation, l := range map[string]loader.Loader[string, int]{
		"nil":            nil,
		"a nil function": loader.Func[string, int](nil),
	} {
		_, err := New("user", l, minute)
		saying(t, err, `cache "user"`, "the loader is nil")
		if strings.Contains(err.Error(), "Options") {
			t.Errorf("%s: %v", situation, err)
		}
	}
}

func TestB34_OddLeaseAndWaitSettingsAreRefusedOrReplaced(t *testing.T) {
	for _, tc := range []struct {
		setting
		want time.Duration // 0: refused
	}{
		{setting{"Lease", time.Duration(0)}, 3 * time.Second},
		{setting{"Lease", 100 * time.Millisecond}, 100 * time.Millisecond},
		{setting{"Lease", -time.Second}, 0},
		{setting{"Lease", 500 * time.Microsecond}, 0},
		{setting{"Lease", time.Duration(1)}, 0},
	} {
		o, err := minute.with(tc.setting).validate()
		if tc.want == 0 {
			saying(t, err, "Options.Lease")
			continue
		}
		must(t, err)
		equal(t, "lease", o.Lease, tc.want)
	}
	o, err := minute.with(setting{"WaitTimeout", -1}).validate()
	must(t, err)
	equal(t, "WaitTimeout of -1", o.WaitTimeout, 0)
}

func TestB92_SmallLifetimesAreNeitherRefusedNorEndless(t *testing.T) {
	for _, ttl := range []time.Duration{1, 500 * time.Microsecond, 999 * time.Microsecond, time.Millisecond,
		1500 * time.Microsecond, 999 * time.Millisecond, 1500 * time.Millisecond} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.Bubble(t)
				o := Options{Redis: b.Client(t), TTL: ttl, TTLJitter: Off, StaleWhileRevalidate: Off, NegativeTTL: ttl, LocalTTL: ttl}
				c := newCache(t, "user", always[string](7), o)
				v, err := c.Get(t.Context(), "k")
				must(t, err)
				equal(t, "value", v, 7)
				equal(t, "commits", c.Stats().Commits, 1)
				rounded := (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
				equal(t, "lifetime in Redis", b.Mini().TTL(c.RedisKey("k")), rounded)
				must(t, c.Set(t.Context(), "k", 8))
				equal(t, "lifetime in Redis after Set", b.Mini().TTL(c.RedisKey("k")), rounded)
				time.Sleep(rounded)
				equal(t, "keys left", len(entries(b)), 0)
			})
		})
	}
}

func TestB94_HugeLifetimesAreRefused(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, field := range durations {
		for _, d := range []time.Duration{year + 1, 100 * year, 292 * year, math.MaxInt64} {
			settings := []setting{{"StaleWhileRevalidate", Off}, {field, d}}
			_, err := minute.with(settings...).validate()
			saying(t, err, "Options."+field+": ", "is longer than a year")
		}
		o, err := minute.with(setting{"StaleWhileRevalidate", Off}, setting{"StaleIfError", year}, setting{field, year}).validate()
		must(t, err)
		equal(t, field, reflect.ValueOf(o).FieldByName(field).Int(), int64(year))
	}
}

func TestB94_AYearWithAllWindowsOnTopOfItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.Bubble(t)
		const year = 365 * 24 * time.Hour
		o := Options{Redis: b.Client(t), TTL: year, TTLJitter: 1, StaleWhileRevalidate: year, StaleIfError: year, LocalTTL: year}
		c := newCache(t, "user", always[string](7), o)
		_, err := c.Get(t.Context(), "k")
		must(t, err)
		if ttl := b.Mini().TTL(c.RedisKey("k")); ttl < year || ttl > 2*year {
			t.Errorf("lifetime in Redis: %v", ttl)
		}
	})
}

func TestB95_FreshTimesStayWithinTheJitter(t *testing.T) {
	for _, jitter := range []float64{Off, 1e-300, 1e-9, 0.1, 0.5, 1} {
		for _, ttl := range []time.Duration{1, 10, time.Microsecond, time.Millisecond, 1500 * time.Microsecond, time.Second, time.Hour} {
			t.Run(fmt.Sprint(jitter, " of ", ttl), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCache(t, "user", always[int](7), Options{TTL: ttl, TTLJitter: jitter, LocalMaxBytes: smallBudget})
					lowest := time.Duration((1 - max(jitter, 0)) * float64(ttl))
					for k := range 50 {
						_, err := c.Get(t.Context(), k)
						must(t, err)
						text := fmt.Sprint(k)
						m := &c.local.lookup(hashOf(text), text, 0).meta
						if fresh := time.Duration(m.Fresh - m.Loaded); fresh <= 0 || fresh < lowest || fresh > max(ttl, time.Millisecond) {
							t.Fatalf("fresh for %v, want %v to %v", fresh, lowest, ttl)
						}
					}
				})
			})
		}
	}
}

func TestALocalTierOfAnySizeIsMadeOrRefused(t *testing.T) {
	for _, size := range []int64{64 << 10, 1 << 20, math.MaxInt64} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("LocalMaxBytes %d: New panicked: %v", size, p)
				}
			}()
			c, err := New("user", always[string](7), minute.with(setting{"LocalMaxBytes", size}))
			if err != nil {
				saying(t, err, "Options.LocalMaxBytes")
				return
			}
			defer func() { _ = c.Close() }()
			_, err = c.Get(t.Context(), "k")
			must(t, err)
		}()
	}
}

func TestThePolicyIsWhatWasSet(t *testing.T) {
	o, err := minute.with(setting{"EarlyRefresh", 2.5}, setting{"WaitFresh", time.Second}).validate()
	must(t, err)
	got := o.policy("s", "t")
	got.Redact, got.Logger = nil, nil
	equal(t, "policy", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", rebuild.Policy{
		TTL: o.TTL, Jitter: o.TTLJitter, Stale: o.StaleWhileRevalidate, IfError: o.StaleIfError, NegativeTTL: o.NegativeTTL,
		EarlyRefresh: 2.5, Backoff: o.ErrorBackoff, LoadTimeout: o.LoadTimeout, WaitTimeout: o.WaitTimeout, Lease: o.Lease, LocalTTL: o.LocalTTL,
		RedisTimeout: o.RedisTimeout, MaxLoads: o.MaxConcurrentLoads, MaxValueBytes: o.MaxValueBytes,
		RetryDeletes: o.TTL, News: rebuild.News{Stream: "s", Topic: "t", Length: 10_000, Life: time.Hour},
	}))
}

// TestACacheWaitsForWhatIsFreshAsLongAsItsOptionsSay: it is no part of the policy, since a call may
// say otherwise.
func TestACacheWaitsForWhatIsFreshAsLongAsItsOptionsSay(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{0: 0, Off: 0, time.Second: time.Second} {
		c := newCache(t, "user", always[string](7), minute.with(setting{"WaitFresh", set}))
		equal(t, "without an option", c.fold(nil).Wait, want)
		equal(t, "with one of zero", c.fold([]CallOption{WaitFresh(0)}).Wait, 0)
		equal(t, "with one below zero", c.fold([]CallOption{WaitFresh(-time.Hour)}).Wait, 0)
		equal(t, "with two", c.fold([]CallOption{WaitFresh(time.Hour), NoStore(), WaitFresh(time.Minute)}).Wait, time.Minute)
	}
}

// FuzzOptions: whatever is set, it is refused by name or makes a policy that holds together.
func FuzzOptions(f *testing.F) {
	f.Add(int64(time.Minute), int64(0), int64(0), int64(0), int64(0), 0.0, 0.0, int64(0), 0, "", "")
	f.Add(int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), -1.0, -1.0, int64(-1), -1, "a b", "#")
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), int64(1), int64(2), int64(3), math.NaN(), math.NaN(), int64(math.MaxInt64), math.MinInt, "é", "x")
	f.Fuzz(func(t *testing.T, ttl, swr, sie, lease, other int64, jitter, early float64, size int64, count int, prefix, schema string) {
		o := Options{
			TTL: time.Duration(ttl), TTLJitter: jitter, EarlyRefresh: early, StaleWhileRevalidate: time.Duration(swr), StaleIfError: time.Duration(sie),
			NegativeTTL: time.Duration(other), ErrorBackoff: time.Duration(other), LoadTimeout: time.Duration(other),
			WaitTimeout: time.Duration(other), WaitFresh: time.Duration(other), Lease: time.Duration(lease), LocalTTL: time.Duration(other),
			RedisTimeout: time.Duration(other), LocalMaxBytes: size, MaxConcurrentLoads: count, MaxValueBytes: count,
			Prefix: prefix, Schema: schema,
		}
		valid, err := o.validate()
		if err != nil {
			saying(t, err, "Options.")
			return
		}
		p := valid.policy("s", "t")
		for _, d := range []time.Duration{p.TTL, p.LoadTimeout, p.Lease, p.LocalTTL, p.RedisTimeout} {
			if d <= 0 || d > longest {
				t.Errorf("%+v: %v", o, d)
			}
		}
		for _, d := range []time.Duration{p.Stale, p.IfError, p.NegativeTTL, p.Backoff, p.WaitTimeout, valid.WaitFresh} {
			if d < 0 || d > longest {
				t.Errorf("%+v: %v", o, d)
			}
		}
		if p.IfError < p.Stale || p.Lease < minLease || !(p.Jitter >= 0 && p.Jitter <= 1) || !(p.EarlyRefresh >= 0 && p.EarlyRefresh <= 100) || p.MaxLoads < 1 || p.MaxValueBytes < 1 {
			t.Errorf("%+v makes %+v", o, p)
		}
		if !word.MatchString(valid.Prefix) || valid.Schema != schema || valid.LocalMaxBytes < 0 {
			t.Errorf("%+v makes %+v", o, valid)
		}
	})
}

func TestOptionsAreNotChangedByNew(t *testing.T) {
	o := Options{TTL: time.Minute, NegativeTTL: Off}
	newCache(t, "user", loader.Func(func(context.Context, string) (int, error) { return 0, nil }), o)
	equal(t, "options", figuresOf(o), figures{TTL: time.Minute, NegativeTTL: Off})
}
