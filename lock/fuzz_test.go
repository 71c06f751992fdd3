package lock

import "testing"

func FuzzTextsOfOthers(f *testing.F) {
	f.Add(grantText(token("a"), 7, 9, "lk:x"))
	f.Add(holderOf("a label"))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if m, ok := readMessage(text); ok {
			again := grantText(m.token, m.fence, m.until, text[keyAt:])
			if n, ok := readMessage(again); !ok || n != m {
				t.Errorf("%q: %+v, again %+v", text, m, n)
			}
		}
		h := readHolder(text)
		if got := len(holderText(h.String())); got != holderSize {
			t.Errorf("%q: %+v is %d bytes in Redis", text, h, got)
		}
	})
}
