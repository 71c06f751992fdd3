package link

import (
	"fmt"
	"reflect"
	"sync"
)

// names remembers which value type each cache name on a client stands for, so that one
// name with two types is refused instead of decoding one type's entries as the other's.
type names struct {
	mu    sync.Mutex // guards taken
	taken map[string]*claim
}

type claim struct {
	typ   reflect.Type
	users int
}

// Claim takes name for values of type typ until the returned function is called. It fails
// if another type holds the name.
func (l *Link) Claim(name string, typ reflect.Type) (release func(), err error) {
	n := &l.names
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.taken[name]
	if c == nil {
		c = &claim{typ: typ}
		if n.taken == nil {
			n.taken = map[string]*claim{}
		}
		n.taken[name] = c
	}
	if c.typ != typ {
		return nil, fmt.Errorf("%q already holds values of type %v on this client, not %v", name, c.typ, typ)
	}
	c.users++
	return sync.OnceFunc(func() { n.release(name, c) }), nil
}

func (n *names) release(name string, c *claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(n.taken, name)
	}
}
