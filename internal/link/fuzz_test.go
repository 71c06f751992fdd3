package link

import (
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// fieldNames are those of a message; the bits of a mask say which of them are not there.
const fieldNames = "tkxnspu"

// FuzzMessage: whatever stands in the stream is delivered as it was sent or is noticed as a gap. It is never
// passed over in silence, and no reader panics.
func FuzzMessage(f *testing.F) {
	f.Add("1-1", "users", "k", "42", "7", "sender", "0-1/tag", "tag", uint8(0))
	f.Add("1-1", "users", "k", "42", "-9223372036854775808", "sender", "0-1/tag", "", uint8(0))
	f.Add("1-1", "", "\x00", "", "0", "", "0-1/tag", "tag", uint8(0))
	f.Add("1-1", "users", "kk", "42", "7", "sender", "0-1/tag", "tag", uint8(0))
	f.Add("1-1", "users", "", "42", "7", "sender", "0-1/tag", "tag", uint8(0))
	f.Add("1-1", "users", "k", "42", "9223372036854775808", "sender", "0-1/tag", "tag", uint8(0))
	f.Add("1-1", "users", "k", "42", "0x7", "sender", "0-1/tag", "tag", uint8(0))
	f.Add("1-1", "users", "k", "42", "7", "sender", "0-1/other", "tag", uint8(0))
	f.Add("1-1", "users", "k", "42", "7", "sender", "0-1/tag/", "tag", uint8(0))
	f.Add("no id", "users", "k", "42", "7", "sender", "", "tag", uint8(1<<5))
	f.Add("1-1", "users", "k", "42", "7", "sender", "0-1/tag", "tag", uint8(1<<6))
	f.Add("", "", "", "", "", "", "", "", uint8(1<<7-1))
	f.Fuzz(func(t *testing.T, id, topic, kind, text, number, sender, predecessor, tag string, missing uint8) {
		x := redis.XMessage{ID: id, Values: map[string]any{}}
		for i, v := range []string{topic, kind, text, number, sender, predecessor, tag} {
			if missing>>i&1 == 0 {
				x.Values[fieldNames[i:i+1]] = v
			}
		}
		s := &Stream{link: newLink(nil), topics: map[string][]*following{}}
		var got []Message
		s.topics[topic] = []*following{{Follower: Follower{Topic: topic, Sender: "receiver", Receive: func(m Message) { got = append(got, m) }}}}
		r := newReader(s)
		r.at = position{"0-1", "tag"}
		r.take(t.Context(), []redis.XMessage{x}, r.clock.Now())

		n, err := strconv.ParseInt(number, 10, 64)
		whole := missing&(1<<len(fieldNames)-1) == 0 && len(kind) == 1 && err == nil
		equal(t, "it is a gap", s.Counts().Gaps == 1, !whole || predecessor != "0-1/tag")
		equal(t, "what was asked for before is trusted", s.Floor() == 0, s.Counts().Gaps == 0)
		var want []Message
		if whole && sender != "receiver" {
			want = []Message{{topic, kind[0], text, n}}
		}
		if !slices.Equal(got, want) {
			t.Errorf("told: %+v, want %+v", got, want)
		}
		if missing>>6&1 == 0 {
			equal(t, "position", r.at, position{id, tag})
		}
		before(id, "0-1") // whatever an id is
	})
}
