package link

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ownConn is one connection outside the user's pool, for commands that block. It belongs to
// one goroutine and lives until its first error: then it is closed, and another one opened.
type ownConn struct {
	client *redis.Client
	conn   *redis.Conn
	wire   net.Conn
	parted func() bool // ends the watch that closes wire with the context
	opened Instant
}

const (
	openPatience = 2 * time.Second  // for a dial, and again for the handshake with the first command
	ownConnLife  = 30 * time.Second // after which the master is looked up anew: a failover need not break connections
)

var (
	errHidden = errors.New("the client does not show its options, so it has no connection of its own")
	errSpent  = errors.New("the connection has broken")
)

// hasOwn tells whether the client can have connections of its own.
func (t topology) hasOwn() bool { return t.cluster != nil || t.options != nil }

// openOwn opens a connection to the master of key. It breaks when ctx ends.
func (l *Link) openOwn(ctx context.Context, key string) (*ownConn, error) {
	o, err := l.ownOptions(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.dialOwn(ctx, o)
}

// dialOwn dials as the user's client would; the connection uses o, which are its own.
func (l *Link) dialOwn(ctx context.Context, o *redis.Options) (*ownConn, error) {
	dial, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	wire, err := recovered(dial, func(ctx context.Context) (net.Conn, error) {
		return o.Dialer(ctx, o.Network, o.Addr)
	})
	if err != nil {
		return nil, err
	}
	o.Dialer = handOver(wire)
	c := &ownConn{client: redis.NewClient(o), wire: wire, opened: l.Clock.Now()}
	c.conn = c.client.Conn()
	c.parted = context.AfterFunc(ctx, func() { _ = wire.Close() })
	return c, nil
}

// handOver returns a dialer that gives wire to whoever comes first: go-redis's pool must not
// dial by itself, with retries and in goroutines that outlive the caller.
func handOver(wire net.Conn) func(context.Context, string, string) (net.Conn, error) {
	var taken atomic.Bool
	return func(context.Context, string, string) (net.Conn, error) {
		if taken.Swap(true) {
			return nil, errSpent
		}
		return wire, nil
	}
}

func (c *ownConn) close() {
	c.parted()
	_ = c.wire.Close()
	_ = c.conn.Close()
	_ = c.client.Close()
}

// ask runs f on the connection, for no longer than d.
func ask[T any](ctx context.Context, c *ownConn, d time.Duration, f func(context.Context, *redis.Conn) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return recovered(ctx, func(ctx context.Context) (T, error) { return f(ctx, c.conn) })
}

// ownOptions are those of a connection of one's own to the master of key.
func (t topology) ownOptions(ctx context.Context, key string) (*redis.Options, error) {
	o := t.options
	if t.cluster != nil {
		m, err := t.cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		o = m.Options()
	}
	if o == nil {
		return nil, errHidden
	}
	return t.private(*o), nil
}

// private turns a copy of the user's options into those of a single connection. How to reach
// the server and how to log in stay as they are. The limiter goes: it is to judge the user's
// calls, not a read that waits.
func (t topology) private(o redis.Options) *redis.Options {
	o.PoolSize, o.PipelinePoolSize, o.MaxConcurrentDials = 2, -1, 1 // a pool of one dials on its own after a failure
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Second // the context is shorter
	o.Limiter = nil
	o.Protocol, o.PushNotificationProcessor = 2, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCacheConfig, o.ClientSideCache, o.AutoPipelineOptions = nil, nil, nil
	if t.cluster != nil && t.ReadsReplicas {
		o.OnConnect = masterOnly(o.OnConnect)
	}
	return &o
}

// masterOnly takes back the READONLY with which go-redis begins connections of a cluster
// client that reads from replicas: a master that has become one must refuse.
func masterOnly(next func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, c *redis.Conn) error {
		if err := c.ReadWrite(ctx).Err(); !answered(err) {
			return err
		}
		if next == nil {
			return nil
		}
		return next(ctx, c)
	}
}

// lookAgain makes a cluster client ask who the masters are: what a connection of one's own is
// told (MOVED, or nothing) does not reach it.
func (t topology) lookAgain(ctx context.Context) {
	if c, ok := t.cluster.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(ctx)
	}
}
