package link

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Link is everything Levee keeps for one Redis client. Open gives the same Link for the
// same client until every user has closed it. All methods are safe for concurrent use.
type Link struct {
	Client redis.UniversalClient
	Clock  *Clock
	Hub    *Hub
	Leases *Renewer

	topology
	breaker *breaker
	stuck   atomic.Int64 // calls given up on that have not come back
	timers  sync.Pool    // of calls
	names   names
	streams streams
	users   int // guarded by links.mu
}

// links are the open ones. Its mutex guards the map and the counts of users only.
var links = struct {
	mu   sync.Mutex
	open map[redis.UniversalClient]*Link
}{open: map[redis.UniversalClient]*Link{}}

// Open returns the Link of client and counts its caller as a user until Close. A client
// that cannot be compared, a wrapper struct around a func say, gets a Link of its own.
func Open(client redis.UniversalClient) (*Link, error) {
	if err := refuse(client); err != nil {
		return nil, err
	}
	if !reflect.ValueOf(client).Comparable() {
		return newLink(client), nil
	}
	links.mu.Lock()
	defer links.mu.Unlock()
	l := links.open[client]
	if l == nil {
		l = newLink(client)
		links.open[client] = l
	}
	l.users++
	return l, nil
}

func newLink(client redis.UniversalClient) *Link {
	clock := NewClock()
	l := &Link{Client: client, Clock: clock, topology: topologyOf(client), breaker: newBreaker(clock)}
	l.Hub = newHub(func(ctx context.Context) *redis.PubSub { return client.Subscribe(ctx) })
	l.Leases = newRenewer(l)
	return l
}

// Close gives the Link up. When the last user does, its goroutines end before Close
// returns, but for what is stuck inside the client: that ends with the client's timeouts.
func (l *Link) Close() {
	if l.leave() {
		l.Leases.close()
		l.Hub.close()
	}
}

func (l *Link) leave() (last bool) {
	if !reflect.ValueOf(l.Client).Comparable() {
		return true
	}
	links.mu.Lock()
	defer links.mu.Unlock()
	l.users--
	if l.users == 0 {
		delete(links.open, l.Client)
	}
	return l.users == 0
}
