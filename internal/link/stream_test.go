package link

import (
	"context"
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

func TestMessagesComeInTheOrderInWhichTheyWereSent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s, e := flowing(t, b, b.Client(t))
		sends(t, s, kept, numbers(50)...)
		must(t, s.Send(t.Context(), &Budget{Left: time.Second}, kept,
			Message{Topic: "users", Kind: 'd', Text: "a"}, Message{Topic: "users", Kind: 'd', Text: "b"}))
		heard(t, e, strings.Join(append(numbers(50), "a", "b"), " "))
		equal(t, "received", e.stream.Counts(), StreamCounts{Received: 52})
		equal(t, "sent", s.Counts(), StreamCounts{Sent: 53})
	})
}

func TestAMessageArrivesAsItWasSent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s := senders(t, b.Client(t))
		for _, m := range []Message{
			{Topic: "users", Kind: 'd', Text: "\x00\xff binary\r\n", Number: 1<<63 - 1},
			{Topic: "users", Kind: 0, Text: "", Number: -1 << 63},
			{Topic: "users", Kind: 0xff, Text: strings.Repeat("x", 4096)},
			{Topic: "", Kind: 'c', Number: 1_790_000_000_000_001},
		} {
			var got []Message
			stop := s.Follow(Follower{Topic: m.Topic, Receive: func(m Message) { got = append(got, m) }})
			synctest.Wait()
			must(t, s.Send(t.Context(), &Budget{Left: time.Second}, kept, m))
			synctest.Wait()
			stop()
			if len(got) != 1 || got[0] != m {
				t.Errorf("got %+v, want %+v", got, m)
			}
		}
	})
}

func TestAFollowerIsToldOfItsTopicButNotOfItsOwnMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s, first := flowing(t, b, b.Client(t))
		second := follow(t, first.stream, "users", "second") // another cache of the same process
		foreign := follow(t, first.stream, "orders", "foreign")
		synctest.Wait()
		sends(t, s, Publication{Sender: "second", Length: 100, Life: time.Hour}, "by second")
		sends(t, s, Publication{Sender: "ear", Length: 100, Life: time.Hour}, "by first")
		sends(t, first.stream, kept, "by neither")
		heard(t, first, "by second by neither")
		heard(t, second, "by first by neither")
		heard(t, foreign, "")
	})
}

func TestAfterAFollowerHasStoppedItIsNotTold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s, e := flowing(t, b, b.Client(t))
		other := follow(t, e.stream, "users", "other")
		inside, release := make(chan struct{}), make(chan struct{})
		var told, finished atomic.Int64
		stop := e.stream.Follow(Follower{Topic: "users", Receive: func(Message) {
			told.Add(1)
			close(inside)
			<-release
			finished.Add(1)
		}})
		synctest.Wait()
		sends(t, s, kept, "while it runs")
		<-inside
		go func() {
			for range 100 {
				runtime.Gosched()
			}
			close(release)
		}()
		stop()
		equal(t, "calls that had ended when stop returned", finished.Load(), 1)
		stop()
		sends(t, s, kept, "later")
		heard(t, other, "while it runs later")
		equal(t, "calls", told.Load(), 1)
	})
}

func TestReadingEndsWithTheLastFollowerAndBeginsAnewWithTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s, e := flowing(t, b, b.Client(t))
		since := e.asked()
		e.stop()
		synctest.Wait()
		equal(t, "readers", goroutinesIn(readers...), 0)
		equal(t, "hears without a follower", e.hears(), false)
		sends(t, s, kept, "unheard")
		time.Sleep(time.Second)
		again := follow(t, e.stream, "users", "again")
		synctest.Wait()
		equal(t, "trusts what was asked for before the pause", again.trusts(since), false)
		equal(t, "trusts what is asked for now", again.trusts(again.now()), true)
		sends(t, s, kept, "heard")
		heard(t, again, "heard")
	})
}

func TestTheSameKeyIsOneStreamUntilItsLastUserCloses(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		first, second := l.OpenStream("a"), l.OpenStream("a")
		equal(t, "the second user's stream", second, first)
		other := l.OpenStream("b")
		defer other.Close()
		equal(t, "another key's stream is another", other == first, false)
		e := &ear{stream: first}
		defer first.Follow(Follower{Topic: "users", Receive: e.receive})()
		synctest.Wait()
		first.Close()
		sends(t, second, kept, "still open")
		heard(t, e, "still open")
		second.Close()
		equal(t, "readers", goroutinesIn(readers...), 0)
		equal(t, "streams left", len(l.streams.open), 1)
		first.Follow(Follower{Topic: "users", Receive: e.receive})()
		equal(t, "readers after a late follower", goroutinesIn(readers...), 0)
	})
}

func TestAStreamThatIsClosedLeavesNothingWhateverTheServerDoes(t *testing.T) {
	for situation, disturb := range map[string]func(*redistest.BubbleServer){
		"in peace":          func(*redistest.BubbleServer) {},
		"server frozen":     func(b *redistest.BubbleServer) { b.Freeze() },
		"connection cut":    func(b *redistest.BubbleServer) { b.Cut() },
		"server turns away": func(b *redistest.BubbleServer) { b.Link(); b.Close() },
	} {
		for _, after := range []time.Duration{0, 1300 * time.Millisecond} {
			t.Run(situation+" for "+after.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
					s := open(t, b.Client(t)).OpenStream(streamKey)
					follow(t, s, "users", "ear")
					synctest.Wait()
					disturb(b)
					time.Sleep(after)
					began := time.Now()
					s.Close()
					took(t, began, 0)
					synctest.Wait()
					equal(t, "readers", goroutinesIn(readers...), 0)
				})
			})
		}
	}
}

func TestAClientThatShowsNoOptionsSendsButNeverHears(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		_, e := flowing(t, b, b.Client(t))
		deaf := ears(t, wrapper{UniversalClient: b.Client(t)})
		equal(t, "can hear", deaf.stream.CanHear(), false)
		equal(t, "others can", e.stream.CanHear(), true)
		sends(t, deaf.stream, kept, "from the deaf")
		heard(t, e, "from the deaf")
		time.Sleep(2 * time.Second)
		heard(t, deaf, "")
		equal(t, "hears", deaf.hears(), false)
	})
}

func TestTheUsersClientAndItsOptionsStayAsTheyAre(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		var connected atomic.Int64
		c := b.Client(t, func(o *redis.Options) {
			o.MaxRetries, o.MinIdleConns = 7, 0
			o.ClientName = "shop"
			o.OnConnect = func(context.Context, *redis.Conn) error { connected.Add(1); return nil }
		})
		before := *c.Options()
		ears(t, c)
		synctest.Wait()
		after := *c.Options()
		equal(t, "pool size", after.PoolSize, before.PoolSize)
		equal(t, "retries", after.MaxRetries, before.MaxRetries)
		equal(t, "read timeout", after.ReadTimeout, before.ReadTimeout)
		equal(t, "protocol", after.Protocol, before.Protocol)
		equal(t, "obeys contexts", after.ContextTimeoutEnabled, before.ContextTimeoutEnabled)
		equal(t, "maintenance notifications", after.MaintNotificationsConfig, before.MaintNotificationsConfig)
		equal(t, "connections of the user's pool", c.PoolStats().TotalConns, 0)
		equal(t, "calls of the user's OnConnect", connected.Load(), 1)
	})
}

// forbidding is a limiter that refuses everything.
type forbidding struct{ asked atomic.Int64 }

func (f *forbidding) Allow() error       { f.asked.Add(1); return net.ErrClosed }
func (f *forbidding) ReportResult(error) { f.asked.Add(1) }

func TestTheUsersLimiterIsNotAskedAboutReadsThatWait(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		var f forbidding
		_, e := flowing(t, b, b.Client(t, func(o *redis.Options) { o.Limiter = &f }))
		time.Sleep(2 * time.Second)
		equal(t, "hears", e.hears(), true)
		equal(t, "asked", f.asked.Load(), 0)
	})
}

// dials counts them, and can panic or change what is written.
type dials struct {
	count atomic.Int64
	panic atomic.Bool
	edit  func(p []byte) []byte
}

func (d *dials) options(o *redis.Options) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.count.Add(1)
		if d.panic.Load() {
			panic("a dialer of the user's")
		}
		c, err := dial(ctx, network, addr)
		if d.edit != nil && err == nil {
			c = edited{c, d.edit}
		}
		return c, err
	}
}

type edited struct {
	net.Conn
	edit func([]byte) []byte
}

func (e edited) Write(p []byte) (int, error) {
	_, err := e.Conn.Write(e.edit(p))
	return len(p), err
}

// A failover need not break a connection to the old master.
func TestTheConnectionIsMadeAnewFromTimeToTimeAndNothingIsMissed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		var d dials
		s, e := flowing(t, b, b.Client(t, d.options))
		since := e.asked()
		for i, text := range numbers(290) {
			sends(t, s, kept, text)
			time.Sleep(time.Second)
			if !e.trusts(since) {
				t.Fatalf("not trusted after %d s", i)
			}
		}
		heard(t, e, strings.Join(numbers(290), " "))
		if n := d.count.Load(); n < 8 || n > 10 {
			t.Errorf("%d dials in 290 s", n)
		}
		equal(t, "log", e.log.lines(""), 0)
	})
}

func TestAPanicInTheUsersDialerIsAnErrorLikeOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		var d dials
		d.panic.Store(true)
		e := ears(t, b.Client(t, d.options))
		time.Sleep(3 * time.Second)
		equal(t, "hears", e.hears(), false)
		equal(t, "warnings", e.log.lines("panic inside the redis client"), 1)
		d.panic.Store(false)
		time.Sleep(2 * time.Second)
		equal(t, "hears", e.hears(), true)
	})
}

// Some proxies answer a blocking read at once.
func TestAServerThatDoesNotBlockIsNotAskedWithoutAPause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		var reads atomic.Int64
		d := dials{edit: func(p []byte) []byte {
			text := string(p)
			reads.Add(int64(strings.Count(text, "xread\r\n")))
			return []byte(strings.ReplaceAll(text, "block\r\n$3\r\n500\r\n", "block\r\n$3\r\n001\r\n"))
		}}
		s, e := flowing(t, b, b.Client(t, d.options))
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			equal(t, "hears", e.hears(), true)
		}
		if n := reads.Load(); n < 15 || n > 50 {
			t.Errorf("%d reads in 10 s", n)
		}
		sends(t, s, kept, "late, but heard")
		time.Sleep(time.Second)
		heard(t, e, "late, but heard")
	})
}
