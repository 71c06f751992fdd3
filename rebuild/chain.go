package rebuild

import "context"

// chain lists the loads that a context is inside of: the innermost first.
type chain struct {
	node  *Node
	key   string
	outer *chain
}

type chainKey struct{}

// inside marks ctx as given to the load of k. A load in the background is part of no other:
// nobody waits for it.
func (n *Node) inside(ctx context.Context, k Key, background bool) context.Context {
	outer, _ := ctx.Value(chainKey{}).(*chain)
	if background {
		outer = nil
	}
	return context.WithValue(ctx, chainKey{}, &chain{n, k.Text, outer})
}

// loading tells whether ctx was given to a load of k, or to one that it led to.
func (n *Node) loading(ctx context.Context, k Key) bool {
	c, _ := ctx.Value(chainKey{}).(*chain)
	for ; c != nil; c = c.outer {
		if c.node == n && c.key == k.Text {
			return true
		}
	}
	return false
}

// nested tells whether ctx was given to a load: it then holds a slot already.
func nested(ctx context.Context) bool { return ctx.Value(chainKey{}) != nil }
