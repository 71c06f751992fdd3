package redistest

import (
	"bufio"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// proxied returns a proxy with a client through it, which waits 100 ms for a
// reply unless edit says otherwise, and a client beside it.
func proxied(t *testing.T, edit ...func(*redis.Options)) (p *Proxy, through, beside *redis.Client) {
	s := Shared(t)
	p = NewProxy(t, s.Addr())
	return p, p.Client(t, s, append([]func(*redis.Options){impatient}, edit...)...), s.Client(t)
}

func patient(o *redis.Options) { o.ReadTimeout = longEnough }

func timedOut(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

func TestAProxyPassesCommandsAndCountsThem(t *testing.T) {
	p, c, beside := proxied(t, patient)
	big := strings.Repeat("x", 1<<20)
	must(t, c.Ping(t.Context()).Err())
	before := p.Stats()
	must(t, c.Set(t.Context(), "k", big, 0).Err())
	equal(t, "value", beside.Get(t.Context(), "k").Val(), big)
	equal(t, "value", c.Get(t.Context(), "k").Val(), big)
	after := p.Stats()
	equal(t, "commands", after.Commands-before.Commands, 2)
	if after.BytesUp-before.BytesUp < 1<<20 || after.BytesDown-before.BytesDown < 1<<20 || after.Open != 1 {
		t.Fatalf("counted %+v, then %+v", before, after)
	}
}

func TestAProxyDelaysEachDirection(t *testing.T) {
	p, c, _ := proxied(t, patient)
	must(t, c.Ping(t.Context()).Err())
	p.Delay(30*time.Millisecond, 20*time.Millisecond)
	start := time.Now()
	must(t, c.Ping(t.Context()).Err())
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Fatalf("took %v", took)
	}
}

func TestAHeldRequestArrivesAfterItsRetry(t *testing.T) {
	p, c, beside := proxied(t)
	h := p.Hold("token-1")
	if err := c.Append(t.Context(), "k", "token-1;").Err(); !timedOut(err) {
		t.Fatalf("got %v", err)
	}
	must(t, h.Wait(t.Context()))
	equal(t, "exists", beside.Exists(t.Context(), "k").Val(), 0)
	must(t, c.Append(t.Context(), "k", "token-1;retry;").Err())
	must(t, h.Release(t.Context()))
	equal(t, "value", beside.Get(t.Context(), "k").Val(), "token-1;retry;token-1;")
}

func TestAHeldRequestSurvivesACut(t *testing.T) {
	p, c, beside := proxied(t, patient)
	h := p.Hold("held")
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Set(t.Context(), "k", "held", 0).Err() })
	must(t, h.Wait(t.Context()))
	p.Cut()
	wg.Wait()
	must(t, h.Release(t.Context()))
	equal(t, "value", beside.Get(t.Context(), "k").Val(), "held")
}

func TestALostReplyBreaksTheConnectionAfterExecution(t *testing.T) {
	p, c, beside := proxied(t, patient)
	h := p.LoseReply("counter")
	if err := c.Incr(t.Context(), "counter").Err(); err == nil {
		t.Fatal("the reply came through")
	}
	must(t, h.Release(t.Context()))
	equal(t, "counter", beside.Get(t.Context(), "counter").Val(), "1")
	must(t, c.Incr(t.Context(), "counter").Err())
}

func TestALostReplyInsideAPipelineLosesNoCommand(t *testing.T) {
	p, c, beside := proxied(t, patient)
	h := p.LoseReply("second")
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Incr(t.Context(), "first")
		p.Incr(t.Context(), "second")
		return nil
	})
	if err == nil {
		t.Fatal("the reply came through")
	}
	must(t, h.Release(t.Context()))
	equal(t, "second", beside.Get(t.Context(), "second").Val(), "1")
}

func TestABlackHoleSwallowsOldAndNewConnections(t *testing.T) {
	p, c, beside := proxied(t)
	must(t, c.Ping(t.Context()).Err())
	p.BlackHole(true)
	for range 3 { // the first one on the old connection
		if err := c.Set(t.Context(), "k", "v", 0).Err(); !timedOut(err) {
			t.Fatalf("got %v", err)
		}
	}
	p.BlackHole(false)
	Eventually(t, longEnough, func() bool { return c.Ping(t.Context()).Err() == nil })
	equal(t, "exists", beside.Exists(t.Context(), "k").Val(), 0)
}

func TestABlackHoleSwallowsMessages(t *testing.T) {
	p, c, beside := proxied(t)
	channel := Prefix(t)
	sub := c.Subscribe(t.Context(), channel)
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	must(t, err)
	p.BlackHole(true)
	must(t, beside.Publish(t.Context(), channel, "lost").Err())
	if m, err := sub.ReceiveTimeout(t.Context(), 100*time.Millisecond); err == nil {
		t.Fatalf("got %v", m)
	}
	p.BlackHole(false)
	Eventually(t, longEnough, func() bool {
		return beside.PubSubNumSub(t.Context(), channel).Val()[channel] == 0 || c.Ping(t.Context()).Err() == nil
	})
}

func TestARefusingProxyIsLikeNoServer(t *testing.T) {
	p, c, _ := proxied(t, patient)
	must(t, c.Ping(t.Context()).Err())
	must(t, p.Refuse(true))
	must(t, p.Refuse(true))
	if c.Ping(t.Context()).Err() == nil {
		t.Fatal("it answered")
	}
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = conn.Close()
		t.Fatal("it accepted")
	}
	must(t, p.Refuse(false))
	Eventually(t, longEnough, func() bool { return c.Ping(t.Context()).Err() == nil })
}

func TestACutConnectionIsReplaced(t *testing.T) {
	p, c, _ := proxied(t, patient)
	must(t, c.Ping(t.Context()).Err())
	p.Cut()
	Eventually(t, longEnough, func() bool { return c.Ping(t.Context()).Err() == nil })
	if n := p.Stats().Accepted; n < 2 {
		t.Fatalf("accepted %d", n)
	}
}

func TestClosingAProxyEndsEverything(t *testing.T) {
	p, c, _ := proxied(t)
	must(t, c.Ping(t.Context()).Err())
	h := p.Hold("held")
	_ = c.Set(t.Context(), "k", "held", 0).Err()
	p.Close()
	p.Close()
	equal(t, "open", p.Stats().Open, 0)
	if err := h.Release(t.Context()); !errors.Is(err, errProxyClosed) {
		t.Fatalf("got %v", err)
	}
	if err := p.Refuse(false); err == nil {
		t.Fatal("a closed proxy listens again")
	}
}

func TestAProxyWithoutAServerClosesItsConnections(t *testing.T) {
	port, err := freePort()
	must(t, err)
	p := NewProxy(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	conn, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("somebody answered")
	}
}

func TestRequestsAreReadWholeAndAsTheyCame(t *testing.T) {
	const first, second = "*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n", "PING\r\n"
	in := bufio.NewReader(strings.NewReader(first + second + "*1\r\n:1\r\n"))
	for _, want := range []string{first, second} {
		got, err := readRequest(in)
		must(t, err)
		equal(t, "request", string(got), want)
	}
	if _, err := readRequest(in); !errors.Is(err, errProtocol) {
		t.Fatalf("got %v", err)
	}
}
