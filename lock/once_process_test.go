package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// run has an effect, says so, and waits for the word under which its result is to be stored.
func (c *child) run(id, v string) string {
	ctx := context.Background()
	got, err := c.once.Do(ctx, id, func(context.Context) (string, error) {
		if err := c.client.Incr(ctx, "effects:"+id).Err(); err != nil {
			return "", err
		}
		redistest.Say("running")
		return v, c.client.BLPop(ctx, 0, "go:"+v).Err()
	})
	return fmt.Sprintf("%s, not stored %t, lost %t", got, errors.Is(err, ErrNotStored), errors.Is(err, ErrLost))
}

// runAll runs so many ids, each by so many callers at once, and says what they got: one value an id, or what went wrong.
func (c *child) runAll(args []string) string {
	var ids, callers int
	_, _ = fmt.Sscan(strings.Join(args, " "), &ids, &callers)
	ctx := context.Background()
	var mu sync.Mutex
	got := make([]string, ids)
	var all sync.WaitGroup
	for i := range ids * callers {
		all.Go(func() {
			n := i % ids
			v, err := c.once.Do(ctx, strconv.Itoa(n), func(context.Context) (string, error) {
				effect, err := c.client.Incr(ctx, "effects:"+strconv.Itoa(n)).Result()
				return fmt.Sprintf("%s/%d/%d", args[2], i, effect), err
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				got[n] = strings.ReplaceAll(err.Error(), " ", "_")
			case got[n] == "":
				got[n] = v
			case got[n] != v:
				got[n] += "|" + v
			}
		})
	}
	all.Wait()
	return strings.Join(got, " ")
}

func TestThreeProcessesRunEachIDOnce(t *testing.T) {
	s := redistest.RealOnly(t)
	const ids, callers = 50, 20
	nodes := processes(t, s, 3, 10*time.Second)
	for i, n := range nodes {
		n.Send(fmt.Sprintf("run-all %d %d process%d", ids, callers, i))
	}
	first := nodes[0].Line(30 * time.Second)
	equal(t, "ids", len(strings.Fields(first)), ids)
	for _, n := range nodes[1:] {
		equal(t, "what another process got", n.Line(30*time.Second), first)
	}
	if strings.ContainsAny(first, "|_") {
		t.Errorf("some ids have failed, or have several results: %s", first)
	}
	for i := range ids {
		effects, err := s.Client(t).Get(t.Context(), "effects:"+strconv.Itoa(i)).Int()
		must(t, err)
		equal(t, "effects of "+strconv.Itoa(i), effects, 1)
	}
}

func TestT05ARunnerThatIsKilledCostsOneLeaseAndTheIDRunsAgain(t *testing.T) {
	const lease = time.Second
	s := redistest.RealOnly(t)
	c := s.Client(t)
	nodes := processes(t, s, 3, lease)
	equal(t, "a", nodes[0].Ask("run x a", 10*time.Second), "running")
	nodes[1].Send("run x b")
	queued(t, s, 1)
	nodes[0].Kill()
	killed := time.Now()
	equal(t, "b", nodes[1].Line(10*time.Second), "running")
	took := time.Since(killed)
	t.Logf("the next one ran %v after the kill", took)
	if took > lease+200*time.Millisecond {
		t.Errorf("the next one ran after %v", took)
	}
	must(t, c.RPush(t.Context(), "go:b", "").Err())
	equal(t, "b", nodes[1].Line(10*time.Second), "b, not stored false, lost false")
	equal(t, "c", nodes[2].Ask("run x c", 10*time.Second), "b, not stored false, lost false")
	equal(t, "effects", c.Get(t.Context(), "effects:x").Val(), "2")
}

// queued returns when so many processes wait for x.
func queued(t *testing.T, s *redistest.Server, n int64) {
	t.Helper()
	c := s.Client(t)
	redistest.Eventually(t, 10*time.Second, func() bool {
		return c.StrLen(t.Context(), "once:x").Val() == int64(lockSize)+n*int64(entrySize)
	}, "the queue")
}

func TestT03TheResultOfARunnerThatWasStoppedForLongIsRefused(t *testing.T) {
	s := redistest.RealOnly(t)
	c := s.Client(t)
	nodes := processes(t, s, 2, time.Second)
	a, b := nodes[0], nodes[1]
	equal(t, "a", a.Ask("run x a", 10*time.Second), "running")
	a.Pause()
	equal(t, "b", b.Ask("run x b", 10*time.Second), "running")
	must(t, c.RPush(t.Context(), "go:b", "").Err())
	equal(t, "b", b.Line(10*time.Second), "b, not stored false, lost false")
	must(t, c.RPush(t.Context(), "go:a", "").Err())
	a.Resume()
	equal(t, "a", a.Line(10*time.Second), "a, not stored true, lost true")
	equal(t, "a again", a.Ask("run x a", 10*time.Second), "b, not stored false, lost false")
	equal(t, "b again", b.Ask("run x b", 10*time.Second), "b, not stored false, lost false")
}
