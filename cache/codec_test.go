package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/rebuild"
)

// counting loads how often it was called for the key, from 1.
type counting[K comparable] struct{ n map[string]int }

func newCounter[K comparable]() *counting[K] { return &counting[K]{map[string]int{}} }

func (c *counting[K]) load(_ context.Context, key K) (int, error) {
	text, err := textOf(key)
	c.n[text]++
	return c.n[text], err
}

// roundTrip encodes and decodes v, and returns what Redis would hold.
func roundTrip[V any](t *testing.T, v V) (back V, letter byte, payload string) {
	t.Helper()
	c := codecFor[V]()
	letter, b, err := c.encode(v)
	must(t, err)
	payload = string(b)
	back, err = c.decode(letter, payload)
	must(t, err)
	return back, letter, payload
}

// comesBack fails unless v is the same after its way through Redis, where it is payload.
func comesBack[V any](t *testing.T, v V, letter byte, payload string) {
	t.Helper()
	back, gotLetter, gotPayload := roundTrip(t, v)
	if !reflect.DeepEqual(back, v) {
		t.Errorf("%T: %#v came back as %#v", v, v, back)
	}
	if gotLetter != letter || gotPayload != payload {
		t.Errorf("%T %#v: stored as %c%q, want %c%q", v, v, gotLetter, gotPayload, letter, payload)
	}
}

type (
	title  string
	blob   []byte
	octet  byte
	octets []octet
)

func TestStringsAreStoredAsTheyAre(t *testing.T) {
	for _, s := range []string{"", "a", `"quoted"`, "null", "ä", "\xff\x00\xfe", "a\nb"} {
		comesBack(t, s, letterString, s)
		comesBack(t, title(s), letterString, s)
	}
}

func TestByteSlicesAreStoredAsTheyAre(t *testing.T) {
	for _, s := range []string{"", "a", "null", "\xff\x00\xfe"} {
		comesBack(t, []byte(s), letterBytes, s)
		comesBack(t, blob(s), letterBytes, s)
		comesBack(t, json.RawMessage("1"), letterJSON, "1")
	}
	comesBack(t, octets{1, 255}, letterBytes, "\x01\xff")
}

func TestB54_NilAndEmptyAreTwoValues(t *testing.T) {
	comesBack(t, []byte(nil), letterNil, "")
	comesBack(t, blob(nil), letterNil, "")
	comesBack(t, []byte{}, letterBytes, "")
	comesBack(t, []int(nil), letterJSON, "null")
	comesBack(t, []int{}, letterJSON, "[]")
	comesBack(t, map[string]int(nil), letterJSON, "null")
	comesBack(t, map[string]int{}, letterJSON, "{}")
	comesBack(t, (*int)(nil), letterJSON, "null")
	comesBack(t, new(int), letterJSON, "0")
	comesBack(t, 0, letterJSON, "0")
	comesBack(t, false, letterJSON, "false")
	comesBack(t, struct{ A *int }{}, letterJSON, `{"A":null}`)
	comesBack(t, any(nil), letterJSON, "null")
}

// Strings and bytes that have a say in how they are written.
type (
	shout     string
	ownText   []byte
	ownOctet  byte
	ownOctets []ownOctet
)

func (s shout) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToUpper(string(s))) }
func (o *ownText) UnmarshalText(b []byte) error {
	*o = b
	return nil
}
func (o *ownText) MarshalText() ([]byte, error) { return *o, nil }
func (o ownOctet) MarshalJSON() ([]byte, error) { return json.Marshal(int(o)) }

func TestStringsAndBytesThatWriteThemselvesAreJSON(t *testing.T) {
	_, letter, payload := roundTrip(t, shout("a"))
	equal(t, "letter", letter, letterJSON)
	equal(t, "payload", payload, `"A"`)
	_, letter, _ = roundTrip(t, ownText("a"))
	equal(t, "letter by a method of the pointer", letter, letterJSON)
	c := codecFor[ownOctets]()
	letter, b, err := c.encode(ownOctets{1, 2})
	must(t, err)
	equal(t, "letter of elements", letter, letterJSON)
	equal(t, "payload of elements", string(b), "[1,2]")
}

func TestEverythingElseIsJSON(t *testing.T) {
	comesBack(t, struct {
		Name string `json:"n"`
		Tags []string
	}{"a", []string{"x"}}, letterJSON, `{"n":"a","Tags":["x"]}`)
	comesBack(t, math.MaxInt64, letterJSON, "9223372036854775807")
	comesBack(t, []string{"a"}, letterJSON, `["a"]`)
	comesBack(t, [2]byte{1, 2}, letterJSON, "[1,2]")
	comesBack(t, time.Unix(0, 0).UTC(), letterJSON, `"1970-01-01T00:00:00Z"`)
}

func TestDecodedBytesAreTheCachesOwn(t *testing.T) {
	payload := "abc"
	b, err := codecFor[[]byte]().decode(letterBytes, payload)
	must(t, err)
	b[0] = 'X'
	equal(t, "payload", payload, "abc")
}

func TestEachCodecKnowsItsLetterOnly(t *testing.T) {
	knows := func(of string, letters string, decode func(letter byte) error) {
		for letter := range 256 {
			err := decode(byte(letter))
			if known := strings.IndexByte(letters, byte(letter)) >= 0; errors.Is(err, rebuild.ErrOtherCodec) == known {
				t.Errorf("%s, letter %q: error %v", of, byte(letter), err)
			}
		}
	}
	knows("string", "s", func(l byte) error { _, err := codecFor[string]().decode(l, "1"); return err })
	knows("bytes", "bz", func(l byte) error { _, err := codecFor[[]byte]().decode(l, "1"); return err })
	knows("JSON", "j", func(l byte) error { _, err := codecFor[int]().decode(l, "1"); return err })
}

func TestWhatCannotBeEncodedOrDecodedIsAnError(t *testing.T) {
	fails := func(what string, _ byte, _ []byte, err error) {
		t.Helper()
		if err == nil || errors.Is(err, rebuild.ErrOtherCodec) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	letter, b, err := codecFor[chan int]().encode(make(chan int))
	fails("a channel", letter, b, err)
	letter, b, err = codecFor[float64]().encode(math.NaN())
	fails("NaN", letter, b, err)
	for _, payload := range []string{"", "{", `"a"`, "1 2", "\xff"} {
		_, err = codecFor[int]().decode(letterJSON, payload)
		fails(fmt.Sprintf("the payload %q", payload), 0, nil, err)
	}
}

// touchy panics where it is written or read.
type touchy struct{ A int }

func (touchy) MarshalJSON() ([]byte, error)  { panic("do not write me") }
func (*touchy) UnmarshalJSON(_ []byte) error { panic("do not read me") }

func TestAPanicOfAValuesOwnMethodBecomesAnError(t *testing.T) {
	c := codecFor[touchy]()
	_, _, err := c.encode(touchy{})
	saying(t, err, "MarshalJSON panicked: do not write me")
	_, err = c.decode(letterJSON, "{}")
	saying(t, err, "UnmarshalJSON panicked: do not read me")
}

func TestAValueThatCannotBeEncodedIsReturnedAndNotStored(t *testing.T) {
	c := newCache(t, "user", always[string](touchy{7}), minute)
	for want := range int64(2) {
		v, err := c.Get(t.Context(), "k")
		must(t, err)
		equal(t, "value", v, touchy{7})
		equal(t, "not stored", c.Stats().Unstorable, want+1)
	}
}

// FuzzStrings: text and bytes come back as they were.
func FuzzStrings(f *testing.F) {
	f.Add("a")
	f.Add("\xff\x00")
	f.Fuzz(func(t *testing.T, s string) {
		comesBack(t, s, letterString, s)
		comesBack(t, []byte(s), letterBytes, s)
	})
}

// FuzzJSON: whatever stands in Redis is a value or an error.
func FuzzJSON(f *testing.F) {
	type value struct {
		A int
		B []string
		C map[string]any
		D *value
	}
	f.Add(`{"A":1,"B":["x"],"C":{"y":null},"D":{}}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, payload string) {
		v, err := codecFor[value]().decode(letterJSON, payload)
		if err != nil {
			return
		}
		back, _, _ := roundTrip(t, v)
		again, _, _ := roundTrip(t, back)
		if !reflect.DeepEqual(back, again) {
			t.Errorf("%q: %+v, then %+v", payload, back, again)
		}
	})
}

// album can be copied.
type album struct{ Songs []string }

func (a *album) Clone() *album { return &album{append([]string(nil), a.Songs...)} }

func TestB06_WithCloneEveryCallerHasACopyOfItsOwn(t *testing.T) {
	o := Options{TTL: time.Minute, Clone: true}
	loaded := &album{[]string{"one"}}
	c := newCache(t, "album", always[string](loaded), o)
	spoil := func(a *album, err error) {
		t.Helper()
		must(t, err)
		equal(t, "song", a.Songs[0], "one")
		a.Songs[0] = "spoilt"
	}
	entry := func(e Entry[*album], err error) (*album, error) { return e.Value, err }
	spoil(c.Get(t.Context(), "k")) // loads
	spoil(c.Get(t.Context(), "k")) // hits
	spoil(entry(c.GetEntry(t.Context(), "k")))
	spoil(entry(c.GetEntry(t.Context(), "another")))
	e, _, err := c.Peek(t.Context(), "k")
	spoil(e.Value, err)
	spoil(c.Refresh(t.Context(), "k"))
	spoil(c.Get(t.Context(), "k"))
	equal(t, "the loader's own", loaded.Songs[0], "one")
}

func TestB06_WhatSetWasGivenMayBeChangedAfterwards(t *testing.T) {
	c := newCache(t, "blob", always[string]([]byte("loaded")), minute)
	given := []byte("given")
	must(t, c.Set(t.Context(), "k", given))
	copy(given, "other")
	v, err := c.Get(t.Context(), "k")
	must(t, err)
	equal(t, "value", string(v), "given")
}

func TestCloneNeedsTheMethod(t *testing.T) {
	o := Options{TTL: time.Minute, Clone: true}
	_, err := New("user", always[string](1), o)
	saying(t, err, "Options.Clone: int has no method Clone() int")
	_, err = New("user", always[string](album{}), o)
	saying(t, err, "Options.Clone: cache.album has no method Clone() cache.album")
}

func TestNotFoundIsNotCloned(t *testing.T) {
	l := loader.Func(func(context.Context, string) (*album, error) { return nil, ErrNotFound })
	c := newCache(t, "album", l, Options{TTL: time.Minute, Clone: true})
	for range 2 {
		v, err := c.Get(t.Context(), "k") // (*album)(nil).Clone would panic
		isErr(t, err, ErrNotFound)
		equal(t, "value", v, nil)
		e, err := c.GetEntry(t.Context(), "k")
		isErr(t, err, ErrNotFound)
		equal(t, "not found", e.NotFound, true)
	}
}
