package link

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

var errSilent = errors.New("the listener was not woken within a minute")

// confirmed waits for a token.
func confirmed(l *Listener) error {
	select {
	case <-l.C:
		return nil
	case <-time.After(time.Minute):
		return errSilent
	}
}

// silent fails if there is a token within d.
func silent(t *testing.T, l *Listener, d time.Duration) {
	t.Helper()
	select {
	case <-l.C:
		t.Error("woken for nothing")
	case <-time.After(d):
	}
}

// listen returns a listener whose first token has been taken.
func listen(t *testing.T, l *Link, channel string) *Listener {
	t.Helper()
	listener := l.Hub.Listen(channel)
	must(t, confirmed(listener))
	return listener
}

// goroutinesIn counts the goroutines that have one of the names on their stack.
func goroutinesIn(names ...string) (n int) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		for _, name := range names {
			if strings.Contains(string(stack), name) {
				n++
				break
			}
		}
	}
	return n
}

// hubNames are on the stacks of a hub's goroutines and of the subscription's under it.
var hubNames = []string{"link.(*Hub)", "go-redis/v9.(*channel)", "go-redis/v9.(*PubSub)"}

// hubGoroutines counts them. It is for use in a bubble.
func hubGoroutines() int {
	synctest.Wait()
	return goroutinesIn(hubNames...)
}

// subscribers is how many connections the server has on a channel.
func subscribers(b *redistest.BubbleServer, channel string) int {
	synctest.Wait()
	return b.Mini().PubSubNumSub(channel)[channel]
}

func TestAListenerIsWokenByAMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		listener := listen(t, l, "ch")
		silent(t, listener, 10*time.Second)
		began := time.Now()
		b.Mini().Publish("ch", "")
		must(t, confirmed(listener))
		took(t, began, 0)
		silent(t, listener, 10*time.Second)
		b.Mini().Publish("other", "")
		silent(t, listener, 10*time.Second)
	})
}

func TestAListenerHearsWhenTheServerHasConfirmed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		listen(t, l, "first").Close()
		b.Freeze()
		listener := l.Hub.Listen("ch")
		silent(t, listener, 2*time.Second)
		b.Thaw()
		must(t, confirmed(listener))
		equal(t, "subscribers by then", subscribers(b, "ch"), 1)
	})
}

func TestManyMessagesAreOneToken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		listener := listen(t, open(t, b.Client(t)), "ch")
		for range 1000 { // nobody takes the tokens meanwhile
			b.Mini().Publish("ch", "")
		}
		synctest.Wait()
		must(t, confirmed(listener))
		silent(t, listener, 10*time.Second)
	})
}

func TestTwoListenersShareAChannel(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		first := listen(t, l, "ch")
		began := time.Now()
		second := listen(t, l, "ch") // woken at once: the server has confirmed long ago
		took(t, began, 0)
		equal(t, "subscribers", subscribers(b, "ch"), 1)

		b.Mini().Publish("ch", "")
		must(t, confirmed(first))
		must(t, confirmed(second))

		first.Close()
		first.Close() // a second time takes nobody else's place
		equal(t, "subscribers while one is left", subscribers(b, "ch"), 1)
		b.Mini().Publish("ch", "")
		must(t, confirmed(second))
		silent(t, first, time.Second)

		second.Close()
		equal(t, "subscribers after the last", subscribers(b, "ch"), 0)
	})
}

func TestAChannelThatIsDroppedAndTakenUpAtOnceIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		listener := listen(t, l, "ch")
		for range 50 {
			listener.Close()
			listener = l.Hub.Listen("ch")
		}
		synctest.Wait()
		must(t, confirmed(listener))
		equal(t, "subscribers", subscribers(b, "ch"), 1)
		b.Mini().Publish("ch", "")
		must(t, confirmed(listener))
		listener.Close()
		equal(t, "subscribers after the last", subscribers(b, "ch"), 0)
		equal(t, "stations left", len(l.Hub.stations), 0)
	})
}

func TestManyChannelsComeAndGoOnOneConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		channels := strings.Fields("a b c d e f g h i j k l m n o p")
		var all []*Listener
		for _, c := range channels {
			all = append(all, l.Hub.Listen(c))
		}
		for i, c := range channels {
			must(t, confirmed(all[i]))
			equal(t, "subscribers of "+c, subscribers(b, c), 1)
		}
		for i, listener := range all {
			b.Mini().Publish(channels[i], "")
			must(t, confirmed(listener))
			listener.Close()
		}
		for _, c := range channels {
			equal(t, "subscribers left of "+c, subscribers(b, c), 0)
		}
	})
}

func TestAfterACutAListenerIsWokenAndHearsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		listener := listen(t, open(t, b.Client(t)), "ch")
		for range 3 {
			b.Cut()
			must(t, confirmed(listener)) // what was published meanwhile is lost: look again
			equal(t, "subscribers", subscribers(b, "ch"), 1)
			b.Mini().Publish("ch", "")
			must(t, confirmed(listener))
		}
	})
}

func TestB40_AMessageLostWhileRedisWasAwayIsMadeUpForByAWakeUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		wire := b.Link()
		listener := listen(t, open(t, wire.Client(t)), "ch")
		wire.Refuse(true)
		b.Mini().Publish("ch", "")
		silent(t, listener, 5*time.Second)
		wire.Refuse(false)
		must(t, confirmed(listener))
	})
}

func TestARestartedServerIsSubscribedToAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		listener := listen(t, open(t, b.Client(t)), "ch")
		b.Restart(t)
		must(t, confirmed(listener))
		b.Mini().Publish("ch", "")
		must(t, confirmed(listener))
	})
}

// sabotaged is a connection on which a SUBSCRIBE to a channel can be made to fail once.
type sabotaged struct {
	net.Conn
	fail *atomic.Bool
}

func (s sabotaged) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) && s.fail.CompareAndSwap(true, false) {
		_ = s.Close()
		return 0, net.ErrClosed
	}
	return s.Conn.Write(p)
}

// The connection breaks under the SUBSCRIBE, and go-redis has reconnected before it takes the
// new channel into the list of those to subscribe to.
func TestASubscriptionThatFailedOnTheWayIsMadeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		var fail atomic.Bool
		l := open(t, b.Client(t, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				return sabotaged{c, &fail}, err
			}
		}))
		listen(t, l, "first")
		fail.Store(true)
		listener := l.Hub.Listen("second")
		must(t, confirmed(listener))
		equal(t, "the subscription failed once", fail.Load(), false)
		b.Mini().Publish("second", "")
		must(t, confirmed(listener))
	})
}

func TestNothingRunsUntilSomebodyListens(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		equal(t, "goroutines", hubGoroutines(), 0)
		l.Hub.close()
	})
}

func TestClosingAHubEndsEverything(t *testing.T) {
	for situation, disturb := range map[string]func(*redistest.BubbleServer){
		"in peace":          func(*redistest.BubbleServer) {},
		"server frozen":     func(b *redistest.BubbleServer) { b.Freeze() },
		"connection cut":    func(b *redistest.BubbleServer) { b.Cut() },
		"server turns away": func(b *redistest.BubbleServer) { b.Link(); b.Close() },
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				l := open(t, b.Client(t))
				listener := listen(t, l, "ch")
				l.Hub.Listen("another")
				disturb(b)
				began := time.Now()
				l.Hub.close()
				if d := time.Since(began); d > hubPatience {
					t.Errorf("closing took %v", d)
				}
				equal(t, "goroutines left", hubGoroutines(), 0)

				l.Hub.close()
				silent(t, l.Hub.Listen("late"), time.Second)
				listener.Close()
				equal(t, "goroutines after a late listener", hubGoroutines(), 0)
			})
		})
	}
}

// In real time: go-redis dials under a mutex, and a bubble's clock stands still while somebody
// waits for one.
func TestClosingAHubDoesNotWaitForAStuckDial(t *testing.T) {
	back := make(chan struct{})
	c := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			<-back // a dialer that looks at nothing
			return nil, net.ErrClosed
		},
	})
	defer func() { _ = c.Close() }()
	l := open(t, c)
	l.Hub.Listen("ch")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		l.Hub.close()
	}()
	select {
	case <-closed:
	case <-time.After(20 * hubPatience):
		t.Error("closing waits for the dial")
	}
	close(back)
	redistest.Eventually(t, 20*time.Second, func() bool { return goroutinesIn(hubNames...) == 0 }, "all goroutines end")
}
