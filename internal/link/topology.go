package link

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// topology is what the kind of a client says about the servers behind it.
type topology struct {
	cluster cluster        // nil unless keys are spread over masters
	options *redis.Options // of a client of one server; nil where it does not show them
	db      int            // pub/sub does not know databases, so names carry it

	// ReadsReplicas is set where a plain GET may be answered by a replica, which lags.
	ReadsReplicas bool
}

// cluster is a *redis.ClusterClient, or a wrapper that embeds one.
type cluster interface {
	Options() *redis.ClusterOptions
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

func topologyOf(client redis.UniversalClient) topology {
	switch c := client.(type) {
	case cluster:
		o := c.Options()
		return topology{cluster: c, ReadsReplicas: o.ReadOnly || o.RouteByLatency || o.RouteRandomly}
	case interface{ Options() *redis.Options }:
		return topology{db: c.Options().DB, options: c.Options()}
	default:
		return topology{}
	}
}

// refuse says why a client cannot be used, or nil.
func refuse(client redis.UniversalClient) error {
	if client == nil {
		return errors.New("client is nil")
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("client is a nil %T", client)
	}
	if _, ring := client.(interface{ Options() *redis.RingOptions }); ring {
		return errors.New("a redis.Ring moves keys to other shards when one is voted down, so two " +
			"nodes could hold the same lease; use a single server, Sentinel or Redis Cluster")
	}
	return nil
}

// DB is the client's database number, or 0 where the client does not tell.
func (t topology) DB() int { return t.db }

// CountsReceivers tells whether the number that PUBLISH answers is that of all subscribers: there is one
// server, to which all of them are connected.
func (t topology) CountsReceivers() bool { return t.cluster == nil && t.options != nil }

// Master names the server that decides about key: clocks are kept per master.
func (t topology) Master(ctx context.Context, key string) string {
	if t.cluster == nil {
		return ""
	}
	m, err := t.cluster.MasterForKey(ctx, key)
	if err != nil {
		return ""
	}
	return m.Options().Addr
}

// masterOf is a client of the master of key.
func (l *Link) masterOf(ctx context.Context, key string) (redis.Cmdable, error) {
	if l.cluster == nil {
		return l.Client, nil
	}
	return l.cluster.MasterForKey(ctx, key)
}

// TimeOf asks the master of key for its clock.
func (l *Link) TimeOf(ctx context.Context, key string) (time.Time, error) {
	m, err := l.masterOf(ctx, key)
	if err != nil {
		return time.Time{}, err
	}
	return m.Time(ctx).Result()
}

// InfoOf asks the master of key about itself.
func (l *Link) InfoOf(ctx context.Context, key, section string) (string, error) {
	m, err := l.masterOf(ctx, key)
	if err != nil {
		return "", err
	}
	return m.Info(ctx, section).Result()
}
