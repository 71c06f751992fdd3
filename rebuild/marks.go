package rebuild

import (
	"context"
	"slices"

	"github.com/levee-cache/levee/internal/link"
)

// mark is a generation as it was when something was loaded.
type mark struct {
	of         *generation
	hard, soft int64
}

func (g *generation) mark() mark { return mark{g, g.hard.Load(), g.soft.Load()} }

// marks are those that the result of a load gets. They must be of before the load: a tag of which it is
// only known afterwards must not have changed since. ok is false if one has, or may have.
func (n *Node) marks(ctx context.Context, l *load, o Outcome) (marks []mark, ok bool) {
	tags := o.Tags
	if o.NotModified && tags == nil {
		tags = l.base.Meta().tags()
	}
	marks = n.marksOf(tags)
	if n.server.link != nil && (len(marks) > 0 || l.lease != nil && !n.life.ended()) {
		err := n.learn(ctx, &l.budget, n.generations(marks)...)
		if err != nil && len(marks) > 0 {
			return marks, l.lease == nil // Redis is away: it is kept by this node alone, until it knows more
		}
	}
	for i, m := range marks {
		marks[i] = m.of.mark() // before the question whether it is the one of the load's start
		if link.Instant(m.of.changed.Load()) >= l.began {
			return marks, false
		}
	}
	return marks, true
}

// marksOf are the marks of tags, as far as they are known.
func (n *Node) marksOf(tags []string) (marks []mark) {
	for _, t := range slices.Compact(slices.Sorted(slices.Values(tags))) {
		marks = append(marks, n.tag(t).mark())
	}
	return marks
}

func (n *Node) generations(marks []mark) []*generation {
	gs := []*generation{n.space}
	for _, m := range marks {
		gs = append(gs, m.of)
	}
	return gs
}

func (s *Stamp) tags() (all []string) {
	for _, m := range s.marks {
		all = append(all, m.of.tag)
	}
	return all
}

// under says what a copy was loaded under. It is believed from when that was known to stand.
func (n *Node) under(s *Stamp, space int64, marks []mark) {
	s.space, s.marks, s.tagged = space, marks, len(marks) > 0
	for _, g := range n.generations(marks) {
		s.since(g.askedAt(), n.policy.LocalTTL)
	}
}

// ended tells whether what carries the marks is over.
func (s *Stamp) ended() bool {
	for _, m := range s.marks {
		if m.of.hard.Load() != m.hard {
			return true
		}
	}
	return false
}

// softened is when the freshness of what carries the marks was ended by the first of them; ok is false if
// it was by none.
func (s *Stamp) softened() (at link.Instant, ok bool) {
	for _, m := range s.marks {
		if i, soft := m.of.softened(m.soft); soft && (!ok || i < at) {
			at, ok = i, true
		}
	}
	return at, ok
}

// current tells whether nothing has changed for what carries the marks.
func (s *Stamp) current() bool {
	for _, m := range s.marks {
		if m.of.hard.Load() != m.hard || m.of.soft.Load() != m.soft {
			return false
		}
	}
	return true
}

// moved is the stamp with the end of its freshness at i, and the windows after it as long as they
// were.
func (s Stamp) moved(i link.Instant) Stamp {
	earlier := max(s.Fresh-i, 0)
	s.Fresh, s.Stale, s.IfError = s.Fresh-earlier, s.Stale-earlier, s.IfError-earlier
	return s
}
