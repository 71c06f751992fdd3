package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// Cluster3 is three masters on loopback that share all slots, with a replica
// each if it is of [ClusterWithReplicas]. If a master is gone the others keep
// answering for their own slots.
type Cluster3 struct {
	nodes    [3]*Server
	replicas []*Server // none, or one a master
}

// Cluster returns a cluster that is stopped when the test ends; it takes two
// to three seconds to form. args go to every node. Without a server program the
// test is skipped, or fails if LEVEE_REQUIRE_REDIS=1.
func Cluster(t TB, args ...string) *Cluster3 {
	t.Helper()
	c, err := StartCluster(args...)
	return c.stopAfter(t, err)
}

// ClusterWithReplicas is [Cluster], but each master has a replica, which takes
// over where the master is gone.
func ClusterWithReplicas(t TB, args ...string) *Cluster3 {
	t.Helper()
	c, err := StartCluster(args...)
	if err == nil {
		err = c.replicate(clusterArgs(args))
	}
	return c.stopAfter(t, err)
}

func (c *Cluster3) stopAfter(t TB, err error) *Cluster3 {
	t.Helper()
	skipWithout(t, err)
	if c != nil {
		t.Cleanup(func() { _ = c.Stop() })
	}
	if err != nil {
		t.Fatalf("redistest: cluster: %v", err)
	}
	return c
}

// StartCluster starts the three masters and returns when all of them agree that
// the cluster is whole. The caller must call Stop.
func StartCluster(args ...string) (*Cluster3, error) {
	c := &Cluster3{}
	for i := range c.nodes {
		s, err := startDaemonOn(freeClusterPort, Options{Args: clusterArgs(args)})
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		c.nodes[i] = s
	}
	if err := c.form(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// clusterArgs come before the caller's, so that those win.
func clusterArgs(args []string) []string {
	return append([]string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", "2000",
		"--cluster-require-full-coverage", "no",
		"--repl-diskless-sync-delay", "0",
	}, args...)
}

func (c *Cluster3) form() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	for i, s := range c.nodes {
		if err := s.use(func(r *redis.Client) error { return c.introduce(ctx, i, r) }); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	for i, s := range c.nodes {
		if err := s.use(func(r *redis.Client) error { return awaitWhole(ctx, r, 3) }); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	return nil
}

// replicate gives each master a replica.
func (c *Cluster3) replicate(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	for i, master := range c.nodes {
		s, err := startDaemonOn(freeClusterPort, Options{Args: args})
		if err != nil {
			return err
		}
		c.replicas = append(c.replicas, s)
		if err := s.use(func(r *redis.Client) error { return follow(ctx, r, master) }); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
	}
	for i, s := range c.all() {
		if err := s.use(func(r *redis.Client) error { return awaitWhole(ctx, r, 6) }); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	return nil
}

// follow makes a node a replica of master, which it has to hear of first.
func follow(ctx context.Context, r *redis.Client, master *Server) error {
	host, port, _ := net.SplitHostPort(master.addr)
	if err := r.ClusterMeet(ctx, host, port).Err(); err != nil {
		return err
	}
	var id string
	if err := master.use(func(m *redis.Client) (err error) {
		id, err = m.ClusterMyID(ctx).Result()
		return err
	}); err != nil {
		return err
	}
	var err error
	followed := func() bool {
		err = r.ClusterReplicate(ctx, id).Err()
		return err == nil
	}
	if !poll(startTimeout, followed) {
		return err
	}
	return awaitStep(r)
}

// all are the masters and their replicas.
func (c *Cluster3) all() []*Server { return append(c.nodes[:len(c.nodes):len(c.nodes)], c.replicas...) }

// introduce gives node i its third of the slots and makes it known to the first
// node. The epochs differ from the start, so the nodes need not settle them.
func (c *Cluster3) introduce(ctx context.Context, i int, r *redis.Client) error {
	if err := r.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
		return err
	}
	if err := r.ClusterAddSlotsRange(ctx, share(i), share(i+1)-1).Err(); err != nil || i == 0 {
		return err
	}
	host, port, _ := net.SplitHostPort(c.nodes[0].addr)
	return r.ClusterMeet(ctx, host, port).Err()
}

// awaitWhole waits until a node has heard of all n nodes and of all slots.
func awaitWhole(ctx context.Context, r *redis.Client, n int) error {
	var text string
	var err error
	whole := func() bool {
		text, err = r.ClusterInfo(ctx).Result()
		return strings.Contains(text, "cluster_state:ok") &&
			strings.Contains(text, "cluster_size:3") &&
			strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d", n)) &&
			strings.Contains(text, fmt.Sprintf("cluster_slots_ok:%d", slots))
	}
	deadline, _ := ctx.Deadline()
	if poll(time.Until(deadline), whole) {
		return nil
	}
	return fmt.Errorf("the cluster did not form: %w\n%s", err, text)
}

// use lends a client to f.
func (s *Server) use(f func(*redis.Client) error) error {
	r := redis.NewClient(s.Options())
	defer r.Close()
	return f(r)
}

// Addrs are the host:port of the three masters.
func (c *Cluster3) Addrs() []string {
	var a []string
	for _, s := range c.nodes {
		a = append(a, s.addr)
	}
	return a
}

// Node returns one master, 0 to 2, to be paused, killed or stopped. A restarted
// node comes back empty and outside of the cluster.
func (c *Cluster3) Node(i int) *Server { return c.nodes[i] }

// Replica returns the replica of the master of that number. After a failover the
// two have changed roles.
func (c *Cluster3) Replica(i int) *Server { return c.replicas[i] }

// NodeFor returns the number of the master that owns key.
func (c *Cluster3) NodeFor(ctx context.Context, key string) (int, error) {
	for _, s := range c.nodes {
		var slot int64
		err := s.use(func(r *redis.Client) (err error) {
			slot, err = r.ClusterKeySlot(ctx, key).Result()
			return err
		})
		if err == nil {
			return owner(int(slot)), nil
		}
	}
	return 0, errors.New("redistest: no master answers")
}

// share is the first slot of node i, and the end of the one before it.
func share(i int) int { return i * slots / 3 }

func owner(slot int) int {
	i := 0
	for slot >= share(i+1) {
		i++
	}
	return i
}

// Client returns a cluster client that is closed when the test ends.
func (c *Cluster3) Client(t TB, edit ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	o := &redis.ClusterOptions{Addrs: c.Addrs()}
	for _, f := range edit {
		f(o)
	}
	r := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// Stop stops all nodes.
func (c *Cluster3) Stop() error {
	var errs []error
	for _, s := range c.all() {
		if s != nil {
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(errs...)
}
