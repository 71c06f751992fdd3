package rebuild

import (
	"context"
	"slices"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// Clear ends everything in the namespace at once: what is cached, here and in Redis, and what loads
// now under way will bring.
func (n *Node) Clear(ctx context.Context) error { return n.endAll(ctx, end{}) }

// EndTag ends what carries a tag, or with soft its freshness.
func (n *Node) EndTag(ctx context.Context, tag string, soft bool) error {
	return n.endAll(ctx, end{tag, soft})
}

// end is the change of a generation: of a tag's, or for "" of the namespace's.
type end struct {
	tag  string
	soft bool
}

func (n *Node) endAll(ctx context.Context, e end) error {
	if n.server.link == nil {
		if n.life.ended() {
			return ErrClosed
		}
		n.poison(e)
		return nil
	}
	turn := n.retries.begin()
	ended := make(chan error, 1)
	detached := context.WithoutCancel(ctx)
	running := n.life.run(func() {
		b := n.budget()
		ended <- n.confirmEnd(detached, turn, e, n.end(detached, &b, e))
	})
	if !running {
		return ErrClosed
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	n.poison(e)
	return n.unconfirmedEnd(e, ctx.Err())
}

// poison is for an end of unknown fate: here it has come.
func (n *Node) poison(e end) {
	n.generation(e.tag).poison(e.soft, n.clock.Now())
	n.ended(e.tag)
}

// end does the three steps of an invalidation for a generation.
func (n *Node) end(ctx context.Context, b *link.Budget, e end) error {
	change, kind := "hard", hardMessage
	if e.soft {
		change, kind = "soft", softMessage
	}
	r, err := n.askGenerations(ctx, b, change, n.generation(e.tag))
	if err != nil {
		n.poison(e)
		return err
	}
	n.generation(e.tag).learn(r[0]) // the one that is in the table now
	n.ended(e.tag)
	if n.stream == nil {
		return nil
	}
	m := link.Message{Topic: n.policy.News.Topic, Kind: kind, Text: e.tag, Number: r[0].hard}
	if e.soft {
		m.Number = r[0].soft
	}
	return untold(n.stream.Send(ctx, b, n.sends, m))
}

// ended takes what is under way from newcomers where it may carry the tag. Of the namespace, nothing that is
// here is left, and nobody in the fleet has to wait for loads whose values nobody may have.
func (n *Node) ended(tag string) {
	if tag == "" {
		n.giveBackAll(n.running.forgetAll(n.values.DropAll))
		n.failed.reset()
	} else {
		n.tags.ends.Add(1)
	}
	n.flights.forgetAll()
}

// giveBackAll gives back the leases of loads that go on.
func (n *Node) giveBackAll(loads []*load) {
	loads = slices.DeleteFunc(loads, func(l *load) bool { return l.lease == nil })
	if len(loads) == 0 {
		return
	}
	n.life.run(func() {
		b := n.budget()
		for _, l := range loads {
			l.lease.End()
			_, _ = n.server.run(context.Background(), &b, link.Urgent, l.key, scripts.release, l.lease.Token, l.lease.Start, 0)
		}
	})
}

func (n *Node) confirmEnd(ctx context.Context, turn uint64, e end, err error) error {
	if err == nil {
		n.retries.ended(e, turn)
		return nil
	}
	n.retryEnd(ctx, turn, e)
	return n.unconfirmedEnd(e, err)
}

func (n *Node) unconfirmedEnd(e end, cause error) error {
	i := n.unconfirmedInvalidation(Key{}, cause)
	i.All, i.Tag = e.tag == "", e.tag
	return i
}

// generationLife is longer than that of anything that carries one, as far as this node has met it.
func (n *Node) generationLife() time.Duration { return max(2*n.longestLife(), 48*time.Hour) }

// learn asks Redis for what is not known of these generations.
func (n *Node) learn(ctx context.Context, b *link.Budget, gs ...*generation) error {
	var unknown []*generation
	for _, g := range gs {
		if !n.known(g, n.clock.Now()) {
			unknown = append(unknown, g)
		}
	}
	return n.learnAgain(ctx, b, unknown...)
}

// learnAgain asks for all of them.
func (n *Node) learnAgain(ctx context.Context, b *link.Budget, gs ...*generation) error {
	if len(gs) == 0 {
		return nil
	}
	replies, err := n.askGenerations(ctx, b, "", gs...)
	if err != nil {
		return err
	}
	for i, r := range replies {
		if gs[i].learn(r) {
			n.ended(gs[i].tag) // the message is on its way, or was lost
		}
	}
	return nil
}

// askGenerations runs the script for each of gs in one pipeline.
func (n *Node) askGenerations(ctx context.Context, b *link.Budget, change string, gs ...*generation) ([]generationReply, error) {
	calls := make([]link.ScriptCall, len(gs))
	for i, g := range gs {
		calls[i] = link.ScriptCall{Script: scripts.generation, Key: g.redis, Args: []any{millis(n.generationLife()), change}}
	}
	class := link.Spared
	if change != "" {
		class = link.Urgent
	}
	return link.Call(ctx, n.server.link, b, class, func(ctx context.Context) ([]generationReply, error) {
		asked := n.clock.Now()
		answers := make([]generationReply, len(gs))
		for i, r := range link.RunAll(ctx, n.server.link.Client, calls) {
			if r.Err != nil {
				return nil, named(r.Err)
			}
			a, err := readGeneration(r.Values, asked, n.clock.Now())
			if err != nil {
				return nil, err
			}
			answers[i] = a
		}
		return answers, nil
	})
}
