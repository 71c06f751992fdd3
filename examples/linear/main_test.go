// Package linear looks at the cache from outside: processes that write a register in a database and read
// it through the cache, while they are killed and paused and their connections are cut. What they saw is
// held against the promises about age.
package linear

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/levee-cache/levee/internal/redistest"
)

// The nodes are this binary again.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(redistest.Main(m, map[string]func(){"node": runNode}))
}

const (
	nodes          = 3
	readersPerNode = 3

	ttl          = 5 * time.Second // LocalTTL too: far above what a node may believe unheard
	staleIfError = 2 * time.Second
	redisTimeout = time.Second // long, since a machine that is busy must not look like one that is cut off
	lease        = 2 * time.Second
	longestPause = 3 * time.Second // some outlast the lease
)

// The bounds that are checked.
const (
	// heard is for a node that can reach Redis. A message comes within milliseconds. Without the stream
	// a copy is believed for one second from the sending of the read that brought it, and that was
	// before the Delete; or until 0.8 s after the sending of the stream's last read that brought
	// everything, and that was before the message. So after a second it is not served unasked, and who
	// asks Redis learns that the entry is gone.
	heard = time.Second

	// windows is for everybody, at all times, whether or not a Delete was confirmed or even tried: how
	// long a value may be served, from when the load that made it has read the database.
	windows = ttl + staleIfError + late

	// late is how long after that its windows may begin: they count from when the load has ended, and the
	// load may dawdle and its node may be paused.
	late = longestPause + redisTimeout + 2*longestDawdle

	// recovery is how long a node that was cut off may go on as one that is: by then it has been told, or
	// asks. Where go-redis or the breaker keep it from Redis for longer, it says so, see stalls.
	recovery = heard
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rest waits for time to pass in other processes.
func rest(d time.Duration) { <-time.After(d) }
