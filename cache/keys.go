package cache

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/levee-cache/levee/rebuild"
)

// keys turns keys of type K into text, and text into names in Redis.
type keys[K comparable] struct {
	kind   keyKind
	prefix string // "<prefix>:<name>[@<schema>]", of every Redis key
	wakeup string // of every wake-up channel
	stream string // of the messages, shared by all caches with this Prefix
}

type keyKind uint8

const (
	stringKey keyKind = iota
	intKey
	uintKey
	textKey // by encoding.TextMarshaler
)

const (
	textBuffer = 24      // holds any integer's text
	longText   = 1 << 10 // from here on a Redis key holds the hash of the text
)

func newKeys[K comparable](o Options, name string, db int) (keys[K], error) {
	kind, err := kindOf(reflect.TypeFor[K]())
	prefix := o.Prefix + ":" + name
	if o.Schema != "" {
		prefix += "@" + o.Schema
	}
	return keys[K]{kind: kind, prefix: prefix, wakeup: fmt.Sprintf("%s~wake%d:", o.Prefix, db),
		stream: o.Prefix + ":!messages"}, err
}

// kindOf says how keys of type t become text. Strings and integers do by their raw value,
// whatever methods they have: a String method that redacts would give everybody one key.
func kindOf(t reflect.Type) (keyKind, error) {
	switch t.Kind() {
	case reflect.String:
		return stringKey, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intKey, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return uintKey, nil
	}
	switch {
	case t.Kind() == reflect.Interface:
		return 0, fmt.Errorf("key type %v is an interface: keys of different types could have one text", t)
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return textKey, nil
	case t.Implements(reflect.TypeFor[fmt.Stringer]()):
		return 0, fmt.Errorf("key type %v has only a String method, which is for people and may be the "+
			"same for different keys: give it MarshalText, or use a string or integer key", t)
	}
	return 0, fmt.Errorf("key type %v is neither a string, an integer nor an encoding.TextMarshaler", t)
}

// text is what identifies key everywhere. It may lie in buf: clone what is to outlive it.
func (ks *keys[K]) text(key K, buf *[textBuffer]byte) (string, error) {
	v := reflect.ValueOf(key)
	switch ks.kind {
	case stringKey:
		return v.String(), nil
	case intKey:
		return inPlace(strconv.AppendInt(buf[:0], v.Int(), 10)), nil
	case uintKey:
		return inPlace(strconv.AppendUint(buf[:0], v.Uint(), 10)), nil
	}
	return marshalled(key)
}

// inPlace is the text in b without a copy: a hit must not allocate.
func inPlace(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// marshalled is the text of a key that writes it itself.
func marshalled[K comparable](key K) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("levee: key %#v: MarshalText panicked: %v", key, p)
		}
	}()
	b, err := any(key).(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return "", fmt.Errorf("levee: key %#v: %w", key, err)
	}
	return string(b), nil
}

// full is key in all its forms. text is cloned, into a variable of its own: else the buffer of
// every hit would be moved to the heap.
func (ks *keys[K]) full(key K, text string) rebuild.Key {
	own := strings.Clone(text)
	name := ks.redis(own)
	return rebuild.Key{Text: own, Hash: hashOf(own), Redis: name, Channel: ks.wakeup + name, User: key}
}

// redis is the entry's key. No name has a '#', so a hashed text meets no other.
func (ks *keys[K]) redis(text string) string {
	if len(text) <= longText {
		return ks.prefix + ":" + text
	}
	sum := sha256.Sum256([]byte(text))
	return ks.prefix + "#:" + hex.EncodeToString(sum[:])
}

func hashOf(text string) uint64 { return xxhash.Sum64String(text) }
