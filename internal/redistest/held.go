package redistest

import (
	"bytes"
	"context"
	"sync"
)

// Held is one request that a [Proxy] waits for or keeps back.
type Held struct {
	proxy    *Proxy
	text     []byte
	lose     bool
	caught   chan struct{} // closed when the request has come
	released chan struct{}
	release  sync.Once
	answered chan struct{} // closed when the server has answered, or err is set
	err      error         // read only after answered
}

// Hold keeps back the first request that contains substr, which may be a key, a
// token or a name, with everything after it on its connection. All other
// connections go on, also with the same request: this is how a first attempt
// arrives after its retry.
func (p *Proxy) Hold(substr string) *Held { return p.expect(substr, false) }

// LoseReply passes on the first request that contains substr and breaks its
// connection towards the client before the reply.
func (p *Proxy) LoseReply(substr string) *Held { return p.expect(substr, true) }

func (p *Proxy) expect(substr string, lose bool) *Held {
	h := &Held{
		proxy:    p,
		text:     []byte(substr),
		lose:     lose,
		caught:   make(chan struct{}),
		released: make(chan struct{}),
		answered: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// catch takes the first Held that waits for this request.
func (p *Proxy) catch(req []byte) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range p.holds {
		if bytes.Contains(req, h.text) {
			p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
			return h
		}
	}
	return nil
}

// Wait returns when the request has come, or with ctx's error.
func (h *Held) Wait(ctx context.Context) error { return h.await(ctx, h.caught) }

// Release sends a held request to the server, also if its client has gone, and
// returns when the server has answered it. Before the request has come, it
// makes it pass. After LoseReply there is nothing to send: it waits until the
// request has been executed.
func (h *Held) Release(ctx context.Context) error {
	h.release.Do(func() { close(h.released) })
	if err := h.await(ctx, h.answered); err != nil {
		return err
	}
	return h.err
}

func (h *Held) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-h.proxy.quit:
		return errProxyClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
