package rebuild

import (
	"context"
	"strings"

	"github.com/levee-cache/levee/internal/link"
)

// Track has Redis report every change of an entry or a generation, by whomever: then a DEL by another program reaches
// the copies of this node too. It fails if Redis refuses; a Redis that does not answer within ctx is tried
// again behind it. Call it before the Node is used.
func (n *Node) Track(ctx context.Context) error {
	topic := n.policy.News.Topic
	t, err := n.server.link.Track(ctx, link.Tracker{
		Prefixes: []string{topic + ":", topic + "!", topic + "#"}, Receive: n.written, Logger: n.policy.Logger})
	if err != nil {
		return err
	}
	n.tracking, n.tracked = t, &t.Trust
	if n.stream == nil {
		n.trust = link.Always() // what others invalidate they write
	}
	return nil
}

// written has what this node holds of keys verified before it is served again. Of a key that is named by the
// digest of its text it is not known which one that is.
func (n *Node) written(keys []string) (known bool) {
	known = true
	for _, key := range keys {
		rest, ok := strings.CutPrefix(key, n.policy.News.Topic)
		switch {
		case !ok || rest == "":
		case rest[0] == ':':
			n.doubt(Key{Text: rest[1:], Hash: n.values.Hash(rest[1:])})
		case rest[0] == '!':
			n.relearn(strings.TrimPrefix(rest[1:], ":"))
		default:
			known = false
		}
	}
	return known
}

// relearn asks behind the report for a generation that may have changed.
func (n *Node) relearn(tag string) {
	g := n.met(tag)
	if g == nil {
		return
	}
	n.life.run(func() {
		for range insistTimes {
			b := n.budget()
			if n.learnAgain(context.Background(), &b, g) == nil || n.life.ended() {
				return
			}
			n.sleep(firstPause)
		}
		n.poison(end{tag: tag})
	})
}

// doubt is for a change that may be by this node itself, or one that ends nothing: a lease that was taken,
// a commit. What is under way is not kept as believed, and not taken from newcomers.
func (n *Node) doubt(k Key) {
	n.running.doubt(k.Text, func() {
		if c := n.values.Lookup(k); c != nil {
			n.values.Keep(k, n.doubted(k, c))
		}
	})
}

// doubted is c to be verified on its next use.
func (n *Node) doubted(k Key, c Copy) Copy {
	s, now := c.Meta().Stamp, n.clock.Now()
	s.Believed, s.Sure, s.Sound, s.Verify, s.Due = now, now, now, now, now
	return n.values.Stamped(k, c, s)
}
