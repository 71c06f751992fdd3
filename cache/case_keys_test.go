package cache_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// onCluster makes nodes on a cluster.
func onCluster(t *testing.T, c *redistest.Cluster3, nodes int, o cache.Options) *fleet {
	t.Helper()
	f := newFleet(t, c.Client(t), o, func() (redis.UniversalClient, *redistest.Link) { return c.Client(t), nil })
	f.grow(nodes)
	return f
}

// oneKeyed fails the test if a script is called with more than one key, or with one that is not
// in the set.
type oneKeyed struct {
	t    *testing.T
	ours map[string]bool
}

func (o oneKeyed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o oneKeyed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		o.look(cmd)
		return next(ctx, cmd)
	}
}

func (o oneKeyed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			o.look(cmd)
		}
		return next(ctx, cmds)
	}
}

func (o oneKeyed) look(cmd redis.Cmder) {
	if a := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") && (fmt.Sprint(a[2]) != "1" || !o.ours[fmt.Sprint(a[3])] && !strings.Contains(fmt.Sprint(a[3]), "!")) {
		o.t.Errorf("a script was called with %v keys, the first being %q", a[2], a[3])
	}
}

// The names of the keys hold every character that hash tags are made of.
func TestB85_AFullCycleOnAClusterStaysWithinOneSlotPerEntry(t *testing.T) {
	t.Parallel()
	o := settings()
	o.RedisTimeout = 10 * time.Second
	f := onCluster(t, redistest.Cluster(t), 2, o)
	a, b := f.nodes[0], f.nodes[1]
	keys, ours := make([]string, soak(700, 10_000)), map[string]bool{}
	for i := range keys {
		keys[i] = []string{"", "{", "}", "{}", "}{", "{tag}"}[i%6] + rand.Text()
		ours[a.RedisKey(keys[i])] = true
	}
	for _, n := range f.nodes {
		n.client.AddHook(oneKeyed{t, ours})
	}
	f.query = takes(0)
	each := func(do func(key string)) {
		var all calls
		for worker := range 32 {
			all.running.Go(func() {
				for i := worker; i < len(keys); i += 32 {
					do(keys[i])
				}
			})
		}
		all.running.Wait()
	}
	each(func(key string) { gets(t, a, key, value(key, 1)) })
	each(func(key string) { gets(t, b, key, value(key, 1)) })
	equal(t, "loads", f.queries(), len(keys))
	each(func(key string) { must(t, a.Set(t.Context(), key, f.write(key))) })
	each(func(key string) { gets(t, a, key, value(key, 2)) })

	stored := f.keys()
	slices.Sort(stored)
	equal(t, "keys", len(slices.Compact(stored)), len(keys))
	for _, key := range stored {
		if !ours[key] {
			t.Errorf("%q is nobody's entry", key)
		}
	}
	for chunk := range slices.Chunk(keys, 500) {
		must(t, a.Delete(t.Context(), chunk...))
	}
	equal(t, "keys left", len(f.keys()), 0)
	f.isUndisturbed(t)
}

// The first loads outlive their leases, unless these are renewed; the second ones come when all
// entries have expired.
func TestB85_LeasesAreWaitedForRenewedAndRunOutOnACluster(t *testing.T) {
	t.Parallel()
	o := settings()
	o.TTL, o.StaleWhileRevalidate, o.RedisTimeout = 1500*time.Millisecond, cache.Off, 10*time.Second
	f := onCluster(t, redistest.Cluster(t), 2, o)
	const keys = 50
	for round, load := range []time.Duration{o.Lease + 500*time.Millisecond, time.Millisecond} {
		f.query = takes(load)
		var all []*calls
		for i := range keys {
			all = append(all, start(t.Context(), 4, fmt.Sprint("{", i, "}"), f.nodes...))
		}
		for i, c := range all {
			for _, g := range c.wait() {
				if want := value(fmt.Sprint("{", i, "}"), 1); g.value != want || g.err != nil {
					t.Fatalf("got %q, %v, want %s", g.value, g.err, want)
				}
			}
		}
		equal(t, "loads", f.queries(), keys*(round+1))
		redistest.Eventually(t, 5*time.Second, func() bool { return len(f.keys()) == 0 }, "all entries expire")
	}
	if waits := f.sum(func(s cache.Stats) int64 { return s.Waits }); waits < keys {
		t.Errorf("%d waits, want one for each of %d keys at least", waits, keys)
	}
	f.isUndisturbed(t)
}

// isUndisturbed checks that no node has gone on without Redis, or lost anything.
func (f *fleet) isUndisturbed(t *testing.T) {
	t.Helper()
	for what, n := range map[string]int64{
		"calls without Redis": f.sum(func(s cache.Stats) int64 { return s.RedisErrors }),
		"unconfirmed commits": f.sum(func(s cache.Stats) int64 { return s.Unconfirmed }),
		"entries of others":   f.sum(func(s cache.Stats) int64 { return s.WrongKey + s.Undecodable }),
	} {
		equal(t, what, n, 0)
	}
}

// odd are keys that break slot arithmetic, tools and limits.
var odd = []string{
	"", "{", "}", "{}", "}{", "{a}{b}", "{}{a}", "{{a}}", "a{b", "a}b", "\x00", "a\x00b", "\n", "a\r\nb", " ", "  ",
	"\xff", "\xc3\x28", "😀", ":", "#", "@", "~", "*", "?", "[a]", "%s", `\`, `"`,
	strings.Repeat("k", 1<<10), strings.Repeat("k", 1<<10+1), strings.Repeat("m", 1<<20),
	"{user1}:name", "{user1}:mail", // tags on purpose
}

func TestB107_OddKeysWorkAndNeverMeet(t *testing.T) {
	o := settings()
	o.MaxValueBytes, o.RedisTimeout = 4<<20, 10*time.Second
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		cycle(t, onServer(t, redistest.Real(t), 2, o))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		f := onCluster(t, redistest.Cluster(t), 2, o)
		cycle(t, f)
		var slots []int64
		for _, key := range []string{f.nodes[0].RedisKey("{user1}:name"), f.nodes[0].RedisKey("{user1}:mail"), "user1"} {
			slot, err := f.probe.ClusterKeySlot(t.Context(), key).Result()
			must(t, err)
			slots = append(slots, slot)
		}
		equal(t, "slots of one tag", len(slices.Compact(slots)), 1)
	})
}

// cycle takes every odd key through loading, waiting, reading, Set and Delete.
func cycle(t *testing.T, f *fleet) {
	a, b := f.nodes[0], f.nodes[1]
	f.query = takes(10 * time.Millisecond)
	var all []*calls
	for _, key := range odd {
		all = append(all, start(t.Context(), 4, key, a, b))
	}
	for i, c := range all {
		for _, g := range c.wait() {
			if g.err != nil || g.value != value(odd[i], 1) {
				t.Fatalf("key %.20q: got %.40q, %v", odd[i], g.value, g.err)
			}
		}
	}
	equal(t, "loads", f.queries(), len(odd))
	equal(t, "keys", len(f.keys()), len(odd))
	for _, key := range odd {
		must(t, a.Set(t.Context(), key, f.write(key)))
	}
	for _, key := range odd {
		if v, err := a.Get(t.Context(), key); v != value(key, 2) || err != nil {
			t.Errorf("key %.20q after Set: got %.40q, %v", key, v, err)
		}
	}
	for i, key := range odd {
		must(t, b.Delete(t.Context(), key))
		equal(t, "keys after a delete", len(f.keys()), len(odd)-i-1)
	}
	for _, key := range odd {
		f.write(key)
		if v, err := b.Get(t.Context(), key); v != value(key, 3) || err != nil {
			t.Errorf("key %.20q after Delete: got %.40q, %v", key, v, err)
		}
	}
	f.isUndisturbed(t)
}

func TestB109_AKeyThatLooksLikeAHelpersIsAKey(t *testing.T) {
	inBubble(t, 2, settings(), func(t *testing.T, f *fleet) {
		f.query = takes(0)
		a, b := f.nodes[0], f.nodes[1]
		redisKey := a.RedisKey("foo")
		keys := []string{"foo", redisKey, "levee1~wake0:" + redisKey, "foo:lock", "lock:foo", "foo:neg", "foo:tombstone", "foo:meta",
			"#:foo", "@v1:foo", ":foo", "foo:", "LVE1", strings.TrimPrefix(a.RedisKey(strings.Repeat("l", 2000)), "levee1:TestB109")}
		for range 4 {
			mathrand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for _, key := range keys {
				must(t, b.Set(t.Context(), key, f.write(key)))
			}
			for _, key := range keys { // a delete of one leaves the others
				before := len(f.keys())
				must(t, a.Delete(t.Context(), key))
				equal(t, "keys", len(f.keys()), before-1)
				gets(t, a, key, f.now(key))
			}
			time.Sleep(time.Second) // b believes its copies no longer
			for _, key := range keys {
				gets(t, b, key, f.now(key))
			}
		}
		equal(t, "waits", f.sum(func(s cache.Stats) int64 { return s.Waits }), 0)
	})
}

func (s *source) now(key string) string { return value(key, 1+s.written(key)) }

// twins makes n keys with one xxhash: what the first eight bytes change, bytes 32 to 40 change
// back.
func twins(n int) []string {
	const p1, p2 uint64 = 11400714785074694791, 14029467366897019727
	step := func(lane, in uint64) uint64 { return bits.RotateLeft64(lane+in*p2, 31) * p1 }
	first := p1
	first += p2 // the lane's first state, beyond what a constant may be
	inverse := p2
	for range 6 { // Newton: doubles the bits that are right
		inverse *= 2 - p2*inverse
	}
	keys := make([]string, n)
	for i := range keys {
		var b [64]byte
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		binary.LittleEndian.PutUint64(b[32:], (step(first, 0)-step(first, uint64(i)))*inverse)
		keys[i] = string(b[:])
	}
	return keys
}

func TestB110_KeysOfOneHashNeverGetEachOthersValue(t *testing.T) {
	keys := twins(1000)
	for _, key := range keys {
		equal(t, "hash", xxhash.Sum64String(key), xxhash.Sum64String(keys[0]))
	}
	o := settings()
	o.RedisTimeout = 10 * time.Second
	tiers(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(0)
		var all calls
		for range 8 {
			all.running.Go(func() {
				for range soak(150, 20_000) {
					key := keys[mathrand.IntN(len(keys))]
					switch mathrand.IntN(8) {
					case 0:
						must(t, n.Delete(t.Context(), key))
					case 1:
						must(t, n.Set(t.Context(), key, value(key, 1)))
					default:
						gets(t, n, key, value(key, 1))
						gets(t, n, key, value(key, 1))
					}
				}
			})
		}
		all.running.Wait()
	})
}

func TestB110_AnEntryOfAnotherKeyIsAMissAndIsCounted(t *testing.T) {
	inBubble(t, 2, settings(), func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		gets(t, b, "other", value("other", 1)) // so that the server's clock is known
		gets(t, a, "k", value("k", 1))
		gets(t, a, "m", value("m", 1))
		k, m := f.raw("k"), f.raw("m")
		must(t, f.probe.Set(t.Context(), a.RedisKey("k"), m, time.Minute).Err())
		must(t, f.probe.Set(t.Context(), a.RedisKey("m"), k, time.Minute).Err())
		gets(t, b, "k", value("k", 1))
		gets(t, b, "m", value("m", 1))
		equal(t, "entries of another key", b.Stats().WrongKey, 2)
		f.stores("k", value("k", 1))
		f.stores("m", value("m", 1))
	})
}
