package rebuild

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// calls are all scripts with arguments that would do something.
func (r *rig) calls() map[string][]any {
	now := int64(r.now())
	return map[string][]any{
		"acquire": {token("A"), 3000, "", 0, string(Try), 0},
		"renew":   {token("A"), now, 3000},
		"commit":  r.commitArgs("A", Micros(now), "v1", storing{}),
		"pass":    {token("A"), now, 1000},
		"fail":    {token("A"), now, 500, 5000, 1000, "no"},
		"release": {token("A"), 0, 0},
		"delete":  {1000},
		"expire":  {1000},
		"seize":   {token("A"), 500, rowText(0), 1000, 0},
	}
}

func TestAKeyOfAnotherTypeIsLeftAloneAndReported(t *testing.T) {
	onServers(t, func(r *rig) {
		must(r.t, r.c.RPush(r.t.Context(), r.key.Redis, "theirs").Err())
		must(r.t, r.c.Expire(r.t.Context(), r.key.Redis, time.Hour).Err())
		for name, script := range allScripts() {
			if _, err := r.try(script, r.calls()[name]...); !errors.Is(err, errForeign) {
				r.t.Errorf("%s: got %v", name, err)
			}
			equal(r.t, name+": what stands there", r.c.LRange(r.t.Context(), r.key.Redis, 0, -1).String(), `lrange `+r.key.Redis+` 0 -1: [theirs]`)
			between(r.t, name+": lifetime", r.life(), 59*time.Minute, time.Hour)
		}
	})
}

func TestAForeignTextIsAMissForThoseWhoReadAndGoesWithThoseWhoWrite(t *testing.T) {
	onServers(t, func(r *rig) {
		for name, want := range map[string]Status{
			"acquire": statusLeased, "seize": statusSeized, "delete": statusDeleted, "expire": statusExpired,
		} {
			r.putRaw("theirs", time.Hour)
			answer, err := r.try(allScripts()[name], r.calls()[name]...)
			must(r.t, err)
			equal(r.t, name, answer.Status, want)
			r.entry()
		}
	})
}

func TestAnAnswerOfAnUnknownShapeIsAnErrorOrEmptyAndNeverAPanic(t *testing.T) {
	for _, values := range [][]any{
		nil, {}, {"held"}, {nil, nil}, {int64(1), "held"}, {"held", int64(1)}, {"held", int64(1), nil, nil},
		{"held", int64(1), int64(0), ""}, {"held", int64(1), int64(0), "LVE1"}, {"held", int64(1), int64(0), 3.5, int64(7)},
		{"failed", int64(1), int64(0), int64(2), int64(3)},
	} {
		answer, err := readReply(values, 0)
		if len(values) < 2 && err == nil {
			t.Errorf("%v: no error", values)
		}
		answer.int(0)
		equal(t, "what is not there", answer.int(len(values)), 0)
	}
}

func TestOnlyAnotherTypeIsForeign(t *testing.T) {
	equal(t, "nothing", named(nil), nil)
	for _, err := range []error{redis.Nil, errors.New("OOM command not allowed"), errors.New("i/o timeout")} {
		if errors.Is(named(err), errForeign) {
			t.Errorf("%v is taken for another type", err)
		}
	}
	cause := errors.New("ERR WRONGTYPE Operation against a key") // as miniredis says it
	if err := named(cause); !errors.Is(err, errForeign) || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
