package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

const (
	addrVar  = "LOCK_NODE_ADDR"
	leaseVar = "LOCK_NODE_LEASE"
)

// process is a node in a process of its own.
type process struct{ *redistest.Proc }

// nodes starts some, which are ready when it returns.
func processes(t *testing.T, s *redistest.Server, n int, lease time.Duration) (all []process) {
	t.Helper()
	for range n {
		all = append(all, process{redistest.Process(t, "node", addrVar+"="+s.Addr(), leaseVar+"="+lease.String())})
	}
	for _, p := range all {
		equal(t, "first line", p.Line(10*time.Second), "ready")
	}
	return all
}

// locks makes the process take a lock, and returns its fence.
func (p process) locks(t *testing.T, name string) int64 {
	t.Helper()
	p.Send("lock " + name)
	return p.has(t, 20*time.Second)
}

// has waits until the process says that it has the lock.
func (p process) has(t *testing.T, within time.Duration) int64 {
	t.Helper()
	line := p.Line(within)
	fence, err := strconv.ParseInt(strings.TrimPrefix(line, "held "), 10, 64)
	if err != nil {
		t.Fatalf("the node says %q", line)
	}
	return fence
}

// child is what a node process does. It answers each line with one.
type child struct {
	*Locker
	client *redis.Client
	lease  *Lease
	once   *Once[string]
}

func nodeMain() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(addrVar), PoolSize: 300})
	lease, _ := time.ParseDuration(os.Getenv(leaseVar))
	k, err := New(client, WithLease(lease))
	if err != nil {
		redistest.Say("%v", err)
		return
	}
	once, err := NewOnce[string](client, WithLease(lease))
	if err != nil {
		redistest.Say("%v", err)
		return
	}
	c := &child{Locker: k, client: client, once: once}
	redistest.Say("ready")
	for line := range redistest.Input() {
		words := strings.Fields(line)
		redistest.Say("%s", c.obey(words[0], words[1:]))
	}
	_ = errors.Join(once.Close(), k.Close())
}

func (c *child) obey(word string, args []string) string {
	ctx := context.Background()
	switch word {
	case "lock":
		l, err := c.Lock(ctx, args[0])
		if err != nil {
			return err.Error()
		}
		c.lease = l
		return fmt.Sprint("held ", l.Fence())
	case "unlock":
		return fmt.Sprint("unlocked ", c.lease.Unlock(ctx))
	case "lost":
		<-c.lease.Context().Done()
		return fmt.Sprint(context.Cause(c.lease.Context()))
	case "write":
		return c.write(args[0])
	case "compete":
		return c.compete(args)
	case "run":
		return c.run(args[0], args[1])
	case "run-all":
		return c.runAll(args)
	}
	return "what?"
}

// register refuses what is written under a fence below the highest it has seen.
var register = redis.NewScript(`
	local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
	if tonumber(ARGV[1]) < seen then return 0 end
	redis.call('HSET', KEYS[1], 'fence', ARGV[1])
	return 1`)

// write writes under the lease's fence, whether it is valid or not, and says what came of it.
func (c *child) write(key string) string {
	valid := c.lease.Valid()
	n, err := register.Run(context.Background(), c.client, []string{key}, c.lease.Fence()).Int()
	return fmt.Sprintf("valid %t, written %d, %v", valid, n, err)
}

// compete takes locks as often as it can, in many goroutines, for a time, and says when it had which.
func (c *child) compete(args []string) string {
	var names, goroutines, millis int
	_, _ = fmt.Sscan(strings.Join(args, " "), &names, &goroutines, &millis)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(millis)*time.Millisecond)
	defer cancel()
	var mu sync.Mutex
	var held []string
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for name := strconv.Itoa(i % names); ; {
				l, err := c.Lock(ctx, "compete"+name)
				if err != nil {
					return
				}
				from := time.Now().UnixNano()
				deadline := l.Deadline().UnixNano()
				_ = c.client.Ping(context.Background()).Err() // the work
				until := min(time.Now().UnixNano(), deadline)
				_ = l.Unlock(context.Background())
				mu.Lock()
				held = append(held, fmt.Sprintf("%s/%d/%d/%d", name, l.Fence(), from, until))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return strings.Join(held, " ")
}
