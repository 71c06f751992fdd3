package main

import (
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func zipped(t *testing.T, words ...byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(words); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestATraceIsReadInOrder(t *testing.T) {
	w, err := decodeTrace(bytes.NewReader(zipped(t, 0, 0, 0, 7, 0, 0, 1, 0, 0, 0, 0, 7)))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.names, []string{"key-7", "key-100"}) || !slices.Equal(w.walk, []uint32{0, 1, 0}) {
		t.Errorf("names %v, walk %v", w.names, w.walk)
	}
}

func TestADamagedTraceIsRefused(t *testing.T) {
	words := make([]byte, 4*5000)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range words {
		words[i] = byte(rng.Uint32())
	}
	whole := zipped(t, words...)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-6] ^= 1 // the checksum
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"cut off":           {whole[:len(whole)/2], "cut off or damaged after"},
		"cut at its end":    {whole[:len(whole)-4], "cut off or damaged after 5000 accesses"},
		"wrong checksum":    {flipped, "cut off or damaged after 5000 accesses"},
		"half a word":       {zipped(t, 1, 2, 3, 4, 5, 6), "cut off or damaged after 1 accesses"},
		"no access":         {zipped(t), "no accesses"},
		"empty":             {nil, "not a gzip file"},
		"not gzip":          {[]byte("key\nkey\nkey\nkey\n"), "not a gzip file"},
		"head of gzip only": {whole[:5], "not a gzip file"},
	} {
		_, err := decodeTrace(bytes.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAMissingTraceNamesTheFlagAndTheFile(t *testing.T) {
	_, err := readTrace("no-such-file")
	if err == nil || !strings.Contains(err.Error(), "-trace") || !strings.Contains(err.Error(), "no-such-file") {
		t.Error(err)
	}
}
