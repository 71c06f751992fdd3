package rebuild

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// resent has the client send the first command that matches again, as it does when an answer is
// lost on the way. What between does comes between the two.
type resent struct {
	match   redistest.Match
	between func()
	done    bool
}

func (r *resent) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *resent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.done || !r.match(cmd) {
			return next(ctx, cmd)
		}
		r.done = true
		if err := next(ctx, cmd); err != nil {
			return err
		}
		r.between()
		return next(ctx, cmd)
	}
}

func (r *resent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// resendsSeize has the next Set of n send its first step twice.
func (n *testNode) resendsSeize(between func()) *resent {
	r := &resent{match: redistest.Script(scripts.seize), between: between}
	n.client.AddHook(r)
	return r
}

func telling(p *Policy) {
	p.News = News{Stream: "messages", Topic: "test", Length: 100, Life: time.Hour}
}

// TestASetWhoseFirstStepWasSentTwiceDoesNotBringItsValueBack: the second has ended what came between them.
func TestASetWhoseFirstStepWasSentTwiceDoesNotBringItsValueBack(t *testing.T) {
	for name, change := range map[string]func(*testNode, Key) error{
		"a set":     func(n *testNode, k Key) error { return n.set(k, "v2") },
		"a delete":  (*testNode).delete,
		"an expire": (*testNode).expire,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v0")
				a, other := newNode(t, b, db), newNode(t, b, db)
				seize := a.resendsSeize(func() {
					db.set("v2")
					must(t, change(other, k))
				})
				must(t, a.set(k, "v1"))
				equal(t, "sent again", seize.done, true)
				synctest.Wait() // the lease is given back
				for _, n := range []*testNode{a, other, newNode(t, b, db)} {
					g := n.get(k)
					equal(t, "value", g.value(), "v2")
					equal(t, "waited", g.took, 0)
				}
			})
		})
	}
}

// TestASetWhoseFirstStepWasSentTwiceIsTold: it has ended what other nodes hold, if nothing more.
func TestASetWhoseFirstStepWasSentTwiceIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v0")
		a, other := newNode(t, b, db, telling), newNode(t, b, db, telling)
		time.Sleep(time.Second)
		equal(t, "value", other.get(k).value(), "v0")
		db.set("v1")
		seize := a.resendsSeize(func() {})
		must(t, a.set(k, "v1"))
		equal(t, "sent again", seize.done, true)
		synctest.Wait()
		equal(t, "what the other node holds", other.kept(k), "")
		equal(t, "value", other.get(k).value(), "v1")
	})
}
