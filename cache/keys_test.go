package cache

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/levee-cache/levee/loader"
)

// textOf is the text of a key.
func textOf[K comparable](key K) (string, error) {
	ks, err := newKeys[K](Options{Prefix: "p"}, "n", 0)
	if err != nil {
		return "", err
	}
	var buf [textBuffer]byte
	text, err := ks.text(key, &buf)
	return strings.Clone(text), err
}

func wantText[K comparable](t *testing.T, key K, want string) {
	t.Helper()
	got, err := textOf(key)
	if err != nil || got != want {
		t.Errorf("%T %#v: text %q, error %v, want %q", key, key, got, err, want)
	}
}

// refusedKey fails unless New refuses keys of type K with the reason.
func refusedKey[K comparable](t *testing.T, reason string) {
	t.Helper()
	c, err := New("user", loader.Loader[K, int](always[K](1)), minute)
	saying(t, err, fmt.Sprintf("key type %v", typeName[K]()), reason)
	if c != nil {
		t.Error("a cache was made all the same")
	}
}

func typeName[K any]() string { return strings.TrimPrefix(fmt.Sprintf("%T", (*K)(nil)), "*") }

// Keys whose methods say something else than their value.
type (
	secretName string
	secretID   int
	secretSize uint16
)

func (secretName) String() string                      { return "***" }
func (secretID) String() string                        { return "***" }
func (secretSize) MarshalText() ([]byte, error)        { return []byte("***"), nil }
func (secretName) MarshalText() ([]byte, error)        { return nil, errors.New("no") }
func (secretName) GoString() string                    { return "***" }
func (*secretID) UnmarshalText(_ []byte) error         { return nil }
func (secretSize) AppendText(b []byte) ([]byte, error) { return b, nil }

func TestStringsAndIntegersAreTheirRawValueWhateverMethodsTheyHave(t *testing.T) {
	wantText(t, secretName("alice"), "alice")
	wantText(t, secretID(7), "7")
	wantText(t, secretSize(7), "7")
}

func TestStringsAreTakenAsTheyAre(t *testing.T) {
	for _, s := range []string{"", " ", "a:b", "#", "ä", "a\x00b", "\xff\xfe", "a\r\nb", strings.Repeat("x", 100_000)} {
		wantText(t, s, s)
	}
}

func TestIntegersOfAllKindsAreDecimal(t *testing.T) {
	wantText(t, math.MinInt, strconv.Itoa(math.MinInt))
	wantText(t, int8(math.MinInt8), "-128")
	wantText(t, int8(math.MaxInt8), "127")
	wantText(t, int16(math.MinInt16), "-32768")
	wantText(t, int32(math.MinInt32), "-2147483648")
	wantText(t, int64(math.MinInt64), "-9223372036854775808")
	wantText(t, int64(math.MaxInt64), "9223372036854775807")
	wantText(t, uint8(math.MaxUint8), "255")
	wantText(t, uint16(math.MaxUint16), "65535")
	wantText(t, uint32(math.MaxUint32), "4294967295")
	wantText(t, uint64(math.MaxUint64), "18446744073709551615")
	wantText(t, uint(math.MaxUint), strconv.FormatUint(math.MaxUint, 10))
	wantText(t, uintptr(7), "7")
	wantText(t, 0, "0")
	wantText(t, 'x', "120")
}

// Keys that write their own text.
type (
	point struct{ x, y int }
	uuid  [16]byte
	node  struct{ id string }
	moody struct{ mood string }
)

func (p point) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d/%d", p.x, p.y), nil }
func (u uuid) MarshalText() ([]byte, error)  { return fmt.Appendf(nil, "%x", u[:]), nil }
func (n *node) MarshalText() ([]byte, error) { return []byte(n.id), nil }
func (m moody) MarshalText() ([]byte, error) {
	if m.mood == "panic" {
		panic("out of mood")
	}
	return []byte("text"), errors.New(m.mood)
}

func TestOtherKeysWriteTheirOwnText(t *testing.T) {
	wantText(t, point{1, -2}, "1/-2")
	wantText(t, uuid{0xab, 15: 0xcd}, "ab0000000000000000000000000000cd")
	wantText(t, &node{"n1"}, "n1")
}

func TestKeysOfTheSameTextAreOneKey(t *testing.T) {
	c := newCache(t, "user", loader.Func(newCounter[*node]().load), minute)
	for range 3 {
		v, err := c.Get(t.Context(), &node{"n1"})
		must(t, err)
		equal(t, "loads", v, 1)
	}
}

func TestAKeyThatCannotWriteItsTextIsAnErrorThatNamesIt(t *testing.T) {
	_, err := textOf(moody{"bad mood"})
	saying(t, err, `cache.moody{mood:"bad mood"}`, "bad mood")
	_, err = textOf(moody{"panic"})
	saying(t, err, `cache.moody{mood:"panic"}`, "MarshalText panicked: out of mood")
	_, err = textOf[*node](nil)
	saying(t, err, "(*cache.node)(nil)", "MarshalText panicked")
}

func TestEveryMethodReportsAKeyThatCannotWriteItsText(t *testing.T) {
	c := newCache(t, "user", always[moody](1), minute)
	bad := moody{"bad mood"}
	_, err := c.Get(t.Context(), bad)
	saying(t, err, "levee: key cache.moody", "bad mood")
	_, err = c.GetEntry(t.Context(), bad)
	saying(t, err, "bad mood")
	_, _, err = c.Peek(t.Context(), bad)
	saying(t, err, "bad mood")
	_, err = c.Refresh(t.Context(), bad)
	saying(t, err, "bad mood")
	saying(t, c.Set(t.Context(), bad, 1), "bad mood")
	saying(t, c.Delete(t.Context(), bad, moody{"worse mood"}), "bad mood", "worse mood")
	saying(t, c.Expire(t.Context(), bad), "bad mood")
	equal(t, "Redis key", c.RedisKey(bad), "")
}

func TestABadKeyAmongOthersDoesNotKeepThemFromBeingDeleted(t *testing.T) {
	c := newCache(t, "user", loader.Func(newCounter[*node]().load), minute)
	good := &node{"good"}
	for _, want := range []int{1, 2} {
		v, err := c.Get(t.Context(), good)
		must(t, err)
		equal(t, "loads", v, want)
		saying(t, c.Delete(t.Context(), nil, good), "MarshalText panicked")
	}
}

// onlyStringer has a text for people.
type onlyStringer struct{ _ int }

func (onlyStringer) String() string { return "***" }

// onlyPointer has its method on the pointer.
type onlyPointer struct{ _ int }

func (*onlyPointer) MarshalText() ([]byte, error) { return nil, nil }

func TestKeysWithoutACertainTextAreRefused(t *testing.T) {
	refusedKey[onlyStringer](t, "has only a String method")
	refusedKey[fmt.Stringer](t, "is an interface")
	refusedKey[any](t, "is an interface")
	refusedKey[interface{ MarshalText() ([]byte, error) }](t, "is an interface")
	refusedKey[struct{ a int }](t, "is neither a string, an integer nor an encoding.TextMarshaler")
	refusedKey[onlyPointer](t, "is neither")
	refusedKey[[2]string](t, "is neither")
	refusedKey[float64](t, "is neither")
	refusedKey[bool](t, "is neither")
	refusedKey[*string](t, "is neither")
	refusedKey[chan int](t, "is neither")
}

func TestTheRedisKeyIsPrefixNameSchemaAndText(t *testing.T) {
	c := newCache(t, "user", always[string](1), minute)
	equal(t, "plain", c.RedisKey("a:b"), "levee1:user:a:b")
	o := minute
	o.Prefix, o.Schema = "shop", "v2"
	other := newCache(t, "user", always[int](1), o)
	equal(t, "with a schema", other.RedisKey(-7), "shop:user@v2:-7")
}

func TestLongTextsAreHashed(t *testing.T) {
	c := newCache(t, "user", always[string](1), minute)
	limit := strings.Repeat("x", longText)
	equal(t, "at the limit", c.RedisKey(limit), "levee1:user:"+limit)
	long := limit + "y"
	hashed := regexp.MustCompile(`^levee1:user#:[0-9a-f]{64}$`)
	if !hashed.MatchString(c.RedisKey(long)) {
		t.Errorf("above it: %q", c.RedisKey(long))
	}
	if c.RedisKey(long) == c.RedisKey(limit+"z") {
		t.Error("two long keys are one")
	}
	equal(t, "the same again", c.RedisKey(strings.Clone(long)), c.RedisKey(long))
}

// taken apart, a Redis key gives back what it was made of.
var anatomy = regexp.MustCompile(`(?s)^([A-Za-z0-9._-]+):([A-Za-z0-9._-]+)(?:@([A-Za-z0-9._-]+))?(#?):(.*)$`)

func redisKey(prefix, name, schema, text string) string {
	ks, _ := newKeys[string](Options{Prefix: prefix, Schema: schema}, name, 0)
	return ks.redis(text)
}

func TestB109_NoTextLooksLikeAnotherName(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("x", longText+1)
	for _, prefix := range []string{"levee1", "levee1.user", "l"} {
		for _, name := range []string{"user", "user.user", "u", "levee1"} {
			for _, schema := range []string{"", "v1", "user"} {
				for _, text := range []string{"", ":", "user", "user:", "#:", "@v1:", "@v1:x", "#:ab", "x", ":x", "user:x",
					long, strings.TrimPrefix(redisKey("p", "n", "", long), "p:n#:"), "#" + strings.TrimPrefix(redisKey("p", "n", "", long), "p:n#"),
					"~wake0:levee1:user:x"} {
					made := fmt.Sprintf("%q", []string{prefix, name, schema, text})
					key := redisKey(prefix, name, schema, text)
					if old, twice := seen[key]; twice {
						t.Errorf("%s and %s are both %q", old, made, key)
					}
					seen[key] = made
				}
			}
		}
	}
}

// FuzzRedisKey: a name that is allowed, and any text, can be told from the key they make.
func FuzzRedisKey(f *testing.F) {
	f.Add("levee1", "user", "", "42")
	f.Add("a", "b", "c", "#:@~:\xff\n")
	f.Add("a", "b", "", strings.Repeat("x", longText+1))
	f.Fuzz(func(t *testing.T, prefix, name, schema, text string) {
		if !word.MatchString(prefix) || !word.MatchString(name) || schema != "" && !word.MatchString(schema) {
			return // refused by New
		}
		parts := anatomy.FindStringSubmatch(redisKey(prefix, name, schema, text))
		if parts == nil {
			t.Fatalf("%q %q %q %q: %q is no key of ours", prefix, name, schema, text, redisKey(prefix, name, schema, text))
		}
		equal(t, "prefix", parts[1], prefix)
		equal(t, "name", parts[2], name)
		equal(t, "schema", parts[3], schema)
		if len(text) > longText {
			equal(t, "mark of a hash", parts[4], "#")
			equal(t, "length of the hash", len(parts[5]), 64)
			return
		}
		equal(t, "mark of a hash", parts[4], "")
		equal(t, "text", parts[5], text)
	})
}

func TestChannelsCarryTheDatabaseAndAreNoKeys(t *testing.T) {
	ks, err := newKeys[string](Options{Prefix: "levee1"}, "user", 3)
	must(t, err)
	k := ks.full("a", "a")
	equal(t, "channel", k.Channel, "levee1~wake3:levee1:user:a")
	if anatomy.MatchString(k.Channel) {
		t.Error("an entry can have the name of a channel")
	}
}

func TestAFullKeyOutlivesTheBufferItWasMadeIn(t *testing.T) {
	ks, err := newKeys[int](Options{Prefix: "levee1"}, "user", 0)
	must(t, err)
	var buf [textBuffer]byte
	text, err := ks.text(123456, &buf)
	must(t, err)
	k := ks.full(123456, text)
	clear(buf[:])
	equal(t, "text", k.Text, "123456")
	equal(t, "Redis key", k.Redis, "levee1:user:123456")
	equal(t, "user's key", k.User, any(123456))
	equal(t, "hash", k.Hash, hashOf("123456"))
}
