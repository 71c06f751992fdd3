package cache

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/levee-cache/levee/rebuild"
)

// codec turns values into payloads and back. Its letter stands in the header of every entry
// that it wrote.
type codec[V any] interface {
	encode(V) (letter byte, payload []byte, err error)
	decode(letter byte, payload string) (V, error)
}

const (
	letterJSON   = 'j'
	letterString = 's'
	letterBytes  = 'b'
	letterNil    = 'z' // a nil slice: an empty one is another value
)

// codecFor stores strings and byte slices as they are, unless they write their own JSON, and
// everything else as JSON.
func codecFor[V any]() codec[V] {
	t := reflect.TypeFor[V]()
	switch {
	case writesItself(t):
	case t.Kind() == reflect.String:
		return stringCodec[V]{}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !writesItself(t.Elem()):
		return bytesCodec[V]{}
	}
	return jsonCodec[V]{}
}

func writesItself(t reflect.Type) bool {
	for _, i := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return true
		}
	}
	return false
}

type stringCodec[V any] struct{}

func (stringCodec[V]) encode(v V) (byte, []byte, error) {
	return letterString, []byte(reflect.ValueOf(v).String()), nil
}

func (stringCodec[V]) decode(letter byte, payload string) (v V, err error) {
	if letter != letterString {
		return v, rebuild.ErrOtherCodec
	}
	reflect.ValueOf(&v).Elem().SetString(payload)
	return v, nil
}

type bytesCodec[V any] struct{}

func (bytesCodec[V]) encode(v V) (byte, []byte, error) {
	b := reflect.ValueOf(v)
	if b.IsNil() {
		return letterNil, nil, nil
	}
	return letterBytes, b.Bytes(), nil
}

func (bytesCodec[V]) decode(letter byte, payload string) (v V, err error) {
	switch letter {
	case letterNil:
	case letterBytes:
		reflect.ValueOf(&v).Elem().SetBytes([]byte(payload))
	default:
		err = rebuild.ErrOtherCodec
	}
	return v, err
}

type jsonCodec[V any] struct{}

func (jsonCodec[V]) encode(v V) (letter byte, payload []byte, err error) {
	defer recovered("MarshalJSON", &err)
	payload, err = json.Marshal(v)
	return letterJSON, payload, err
}

func (jsonCodec[V]) decode(letter byte, payload string) (v V, err error) {
	if letter != letterJSON {
		return v, rebuild.ErrOtherCodec
	}
	defer recovered("UnmarshalJSON", &err)
	err = json.Unmarshal([]byte(payload), &v)
	return v, err
}

// recovered makes an error of a panic in a value's own method: it runs in our goroutines, where
// nobody else would recover.
func recovered(method string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s panicked: %v", method, p)
	}
}
