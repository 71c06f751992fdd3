package link

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

var echo = redis.NewScript(`redis.call('APPEND', KEYS[1], ARGV[1]) return {ARGV[1]}`)

// echoes are calls of a script, one for each text.
func echoes(key string, texts ...string) (calls []ScriptCall) {
	for _, text := range texts {
		calls = append(calls, ScriptCall{Script: echo, Key: key, Args: []any{text}})
	}
	return calls
}

func TestAScriptIsLoadedWhereTheServerDoesNotKnowIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t)
		for _, text := range []string{"a", "b"} {
			got, err := echoes("k", text)[0].Run(t.Context(), c)
			must(t, err)
			equal(t, "answer", got[0], any(text))
			must(t, c.ScriptFlush(t.Context()).Err())
		}
	})
}

func TestAPipelineSurvivesAServerThatHasForgottenItsScripts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t)
		for _, state := range []string{"cold", "warm"} {
			replies := RunAll(t.Context(), c, echoes(state, "a", "b", "c"))
			for i, want := range []string{"a", "b", "c"} {
				must(t, replies[i].Err)
				equal(t, "answer", replies[i].Values[0], any(want))
			}
			equal(t, "what was done", c.Get(t.Context(), state).Val(), "abc")
		}
	})
}

func TestEachCallOfAPipelineHasItsOwnError(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t)
		must(t, c.LPush(t.Context(), "list", "x").Err())
		for _, state := range []string{"cold", "warm"} {
			calls := append(echoes("k", "a"), append(echoes("list", "b"), echoes("k", "c")...)...)
			replies := RunAll(t.Context(), c, calls)
			must(t, replies[0].Err)
			saying(t, replies[1].Err, "WRONGTYPE")
			must(t, replies[2].Err)
			equal(t, "answer, "+state, replies[2].Values[0], any("c"))
		}
	})
}

func TestAPipelineWithoutAnAnswerFailsEachCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
		f := redistest.NewFaults(t)
		c.AddHook(f)
		f.Fail(redistest.Any, nil)
		for i, r := range RunAll(t.Context(), c, echoes("k", "a", "b")) {
			if r.Err == nil {
				t.Errorf("call %d: no error, values %v", i, r.Values)
			}
		}
		equal(t, "replies to nothing", len(RunAll(t.Context(), c, nil)), 0)
	})
}
