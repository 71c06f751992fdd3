package rebuild

import (
	"sync"
	"sync/atomic"

	"github.com/levee-cache/levee/internal/link"
)

// tags are the generations of the tags that this node has met lately.
type tags struct {
	ends atomic.Uint64 // how many have ended, as far as this node knows

	mu   sync.Mutex // guards what follows
	all  map[string]*generation
	gone link.Instant // when the last change of one that had to go was heard of

	// unmet are changes of tags that this node has not met: a load that is running may carry one.
	unmet fading[unmetChange]
}

type unmetChange struct {
	at    link.Instant
	heard bool
}

// mostTags bounds them. One that has to go takes the copies that carry it along.
const mostTags = 1 << 16

func (n *Node) tag(text string) *generation {
	t := &n.tags
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.all[text]
	if g != nil {
		return g
	}
	for other, old := range t.all { // any
		if len(t.all) < mostTags {
			break
		}
		t.gone = max(t.gone, link.Instant(old.changed.Load()))
		old.evict(n.clock.Now())
		delete(t.all, other)
	}
	if t.all == nil {
		t.all = map[string]*generation{}
	}
	changed := t.gone
	if unmet := t.unmet.find(text); unmet.heard {
		changed = max(changed, unmet.at)
	}
	g = newGeneration(n.generationKey(text), text, changed)
	t.all[text] = g
	return g
}

// generation is the one of a tag, or for "" the namespace's.
func (n *Node) generation(tag string) *generation {
	if tag == "" {
		return n.space
	}
	return n.tag(tag)
}

func (n *Node) generationKey(tag string) string {
	if tag == "" {
		return n.policy.News.Topic + "!"
	}
	return n.policy.News.Topic + "!:" + tag
}

// met is generation, but nil for a tag that this node has not met.
func (n *Node) met(tag string) *generation {
	if tag == "" {
		return n.space
	}
	n.tags.mu.Lock()
	defer n.tags.mu.Unlock()
	return n.tags.all[tag]
}
