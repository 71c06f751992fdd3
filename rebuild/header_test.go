package rebuild

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const goldenHash = 0x0123456789abcdef

// golden are entries as version 1 of the format wrote them, in testdata/entry/v1 by name. They
// stay readable for ever: a new format gets a folder of its own and leaves these alone.
var golden = map[string]Entry{
	"value": {
		Header: Header{
			Kind: KindValue, Codec: 'j', Compression: 's',
			Identity: Identity{Version: 1_790_000_000_123_456, Writer: "AZnT0VhbcRCjl2gfK4mDxw"},
			Row:      42, Cost: 51_234 * time.Microsecond,
			Fresh: 1_790_000_300_123, Stale: 1_790_000_360_123, IfError: 1_790_003_900_123,
			Body: 24,
		},
		Payload: `{"id":42,"name":"Zoë"}` + "\n",
	},
	"value-leased": {
		Header: Header{
			Kind: KindValue, Codec: 's', Compression: '-',
			Identity: Identity{Version: 1_790_000_000_123_456, Writer: "AZnT0VhbcRCjl2gfK4mDxw"},
			Fresh:    1_790_000_300_123, Stale: 1_790_000_360_123, IfError: 1_790_003_900_123,
			HoldDown: 1_790_000_002_000, RetryAfter: 1_790_000_350_500, Failures: 3,
			Token: "X9zkQb0-R_uS3fYp8wW1Hg", Start: 1_790_000_351_000_001, LeaseUntil: 1_790_000_354_000, Waiters: true,
			Body: 6,
		},
		Payload: "\x00\xff\r\n%s",
	},
	"value-empty": {
		Header: Header{
			Kind: KindValue, Codec: 's', Compression: '-',
			Identity: Identity{Version: 1, Writer: "AZnT0VhbcRCjl2gfK4mDxw"},
			Row:      math.MaxUint64, Fresh: 1, Stale: 2, IfError: 3,
		},
	},
	"not-found": {
		Header: Header{
			Kind: KindNotFound, Codec: '-', Compression: '-',
			Identity: Identity{Version: 1_790_000_000_123_456, Writer: "AZnT0VhbcRCjl2gfK4mDxw"},
			Cost:     900 * time.Microsecond, Fresh: 1_790_000_005_123, Stale: 1_790_000_005_123, IfError: 1_790_000_005_123,
		},
	},
	"failed": {
		Header: Header{
			Kind: KindFailed, Codec: '-', Compression: '-',
			RetryAfter: 1_790_000_000_623, Failures: 1, Variable: 33,
		},
		Message: "dial tcp 10.0.0.7:5432: timed out",
	},
	"failed-leased": {
		Header: Header{
			Kind: KindFailed, Codec: '-', Compression: '-',
			RetryAfter: 1_790_000_000_623, Failures: 255,
			Token: "X9zkQb0-R_uS3fYp8wW1Hg", Start: 1_790_000_000_700_000, LeaseUntil: 1_790_000_003_700,
			Variable: 2,
		},
		Message: "é",
	},
	"lease": {
		Header: Header{
			Kind: KindLease, Codec: '-', Compression: '-',
			Token: "X9zkQb0-R_uS3fYp8wW1Hg", Start: 1_790_000_000_000_000, LeaseUntil: 1_790_000_003_000, Waiters: true,
		},
	},
	"hold-down": {
		Header: Header{Kind: KindLease, Codec: '-', Compression: '-', Row: 7, HoldDown: 1_790_000_002_000},
	},
	"pass": {
		Header: Header{
			Kind: KindPass, Codec: '-', Compression: '-',
			Fresh: 1_790_000_001_000, Stale: 1_790_000_001_000, IfError: 1_790_000_001_000,
		},
	},
}

func goldenBytes(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "entry", "v1", name))
	must(t, err)
	return string(b)
}

// wire is e as it stands in Redis.
func (e Entry) wire() string { return string(e.Header.format()) + e.Message + e.Carried + e.Payload }

func goldenEntry(name string) Entry {
	e := golden[name]
	e.Hash = goldenHash
	return e
}

func TestEntriesOfEveryFormatStayReadable(t *testing.T) {
	for name := range golden {
		t.Run(name, func(t *testing.T) {
			e, err := parseEntry(goldenBytes(t, name), goldenHash)
			must(t, err)
			equal(t, "entry", e, goldenEntry(name))
		})
	}
}

func TestEveryGoldenFileIsTested(t *testing.T) {
	files, err := os.ReadDir(filepath.Join("testdata", "entry", "v1"))
	must(t, err)
	equal(t, "files", len(files), len(golden))
	kinds := map[Kind]bool{}
	for _, e := range golden {
		kinds[e.Kind] = true
	}
	equal(t, "kinds", len(kinds), 5)
}

func TestTheFormatHasNotChanged(t *testing.T) {
	for name := range golden {
		t.Run(name, func(t *testing.T) {
			equal(t, "wire", goldenEntry(name).wire(), goldenBytes(t, name))
		})
	}
}

func TestTheHeaderIsSmallAndEachFieldHasItsPlace(t *testing.T) {
	sum := 0
	names := map[string]bool{}
	for i, f := range fields {
		equal(t, "offset of "+f.name, offsets[i], sum)
		sum += f.width
		names[f.name] = true
	}
	equal(t, "sum of the widths", HeaderSize, sum)
	equal(t, "names", len(names), fieldCount)
	between(t, "size", HeaderSize, 1, 192)
	equal(t, "width of no token", len(noToken), fields[fToken].width)
	equal(t, "width of no writer", len(noToken), fields[fWriter].width)
}

func TestTheDocumentedHeaderIsTheOneInTheCode(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	must(t, err)
	for i, f := range fields {
		row := fmt.Sprintf("\n| %d | %d | %s | ", offsets[i], f.width, f.name)
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/protocol.md has no row %q", row)
		}
	}
}

func TestAHeaderIsPrintableAndHasOneSizeWhateverItHolds(t *testing.T) {
	for situation, h := range map[string]Header{
		"nothing": {Kind: KindLease},
		"the largest": {
			Kind: KindValue, Codec: '~', Compression: '~',
			Identity: Identity{1<<52 - 1, strings.Repeat("_", len(noToken))}, Row: math.MaxUint64, Hash: math.MaxUint64,
			Cost: math.MaxInt64, Fresh: 1<<44 - 1, Stale: 1<<44 - 1, IfError: 1<<44 - 1, HoldDown: 1<<44 - 1,
			RetryAfter: 1<<44 - 1, Failures: math.MaxInt, Token: strings.Repeat("-", len(noToken)), Start: 1<<52 - 1,
			LeaseUntil: 1<<44 - 1, Waiters: true, Variable: math.MaxUint16, Body: math.MaxUint32,
		},
	} {
		b := h.format()
		equal(t, situation+": size", len(b), HeaderSize)
		for i, c := range b {
			if c <= ' ' || c > '~' {
				t.Errorf("%s: byte %d is %q", situation, i, c)
			}
		}
		if _, err := parseHeader(string(b), h.Hash); err != nil {
			t.Errorf("%s: %v", situation, err)
		}
	}
}

func TestWhatTheHeaderCannotCountIsCapped(t *testing.T) {
	h, err := parseHeader(string(Header{Kind: KindValue, Cost: time.Hour, Failures: 1000}.format()), 0)
	must(t, err)
	equal(t, "cost", h.Cost, (1<<28-1)*time.Microsecond)
	equal(t, "failures", h.Failures, 255)
}

func TestAnEntryThatWasCutIsNone(t *testing.T) {
	for name := range golden {
		whole := goldenBytes(t, name)
		for n := range len(whole) {
			if _, err := parseEntry(whole[:n], goldenHash); !errors.Is(err, errNoEntry) {
				t.Fatalf("%s, the first %d bytes of %d: got %v", name, n, len(whole), err)
			}
		}
		if _, err := parseEntry(whole+"x", goldenHash); !errors.Is(err, errNoEntry) {
			t.Errorf("%s with a byte more: got %v", name, err)
		}
	}
}

func TestAHeaderAloneCanBeRead(t *testing.T) {
	for name := range golden {
		h, err := parseHeader(goldenBytes(t, name)[:HeaderSize], goldenHash)
		must(t, err)
		equal(t, name, h, goldenEntry(name).Header)
	}
}

func TestTheEntryOfAnotherKeyIsNoticed(t *testing.T) {
	for name := range golden {
		for _, hash := range []uint64{0, goldenHash + 1, goldenHash << 1, math.MaxUint64} {
			if _, err := parseEntry(goldenBytes(t, name), hash); !errors.Is(err, errWrongKey) {
				t.Errorf("%s read as the entry of %#x: got %v", name, hash, err)
			}
		}
	}
}

func TestWhatIsNotOfThisFormatIsNoEntry(t *testing.T) {
	good := goldenBytes(t, "value")
	with := func(f int, text string) string { return good[:offsets[f]] + text + good[offsets[f]+len(text):] }
	for situation, s := range map[string]string{
		"nothing":               "",
		"somebody else's value": strings.Repeat(`{"foreign":true}`, 20),
		"a later format":        with(fMagic, "LVE2"),
		"another magic":         with(fMagic, "lve1"),
		"an unknown kind":       with(fKind, "Q"),
		"a kind of zero":        with(fKind, "\x00"),
		"no hex version":        with(fVersion, "00000000000g0"),
		"a negative instant":    with(fFresh, "-0000000001"),
		"an instant of blanks":  with(fIfError, "           "),
		"a signed instant":      with(fStale, "+0000000001"),
		"a prefixed instant":    with(fUntil, "0x000000001"),
		"an underlined one":     with(fRetry, "0000_000001"),
		"no hex length":         with(fBody, "0000001?"),
		"a length too large":    with(fBody, "ffffffff"),
		"a length too small":    with(fBody, "00000001"),
		"a variable part":       with(fVariable, "0001"),
	} {
		if _, err := parseEntry(s, goldenHash); !errors.Is(err, errNoEntry) {
			t.Errorf("%s: got %v", situation, err)
		}
	}
}

func TestAHashHasOneTextOfElevenCharacters(t *testing.T) {
	seen := map[string]uint64{}
	for _, hash := range []uint64{0, 1, 1 << 63, goldenHash, math.MaxUint64} {
		text := hashText(hash)
		equal(t, "width", len(text), fields[fHash].width)
		if other, ok := seen[text]; ok {
			t.Errorf("%#x and %#x have one text", hash, other)
		}
		seen[text] = hash
	}
}

func TestAPartThatDoesNotFitItsHeaderIsLeftOut(t *testing.T) {
	h := goldenEntry("failed").Header
	equal(t, "message", h.with("dial tcp 10.0.0.7:5432: timed out").Message, "dial tcp 10.0.0.7:5432: timed out")
	for _, rest := range []string{"", "dial", strings.Repeat("x", 34)} {
		equal(t, fmt.Sprintf("message of %d bytes", len(rest)), h.with(rest), Entry{Header: h})
	}
}
