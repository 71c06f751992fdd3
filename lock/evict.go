package lock

import (
	"context"
	"log/slog"
	"strings"

	"github.com/levee-cache/levee/internal/link"
)

// noteEviction warns, once, of a server that may evict locks when its memory is full. It asks behind the back of the first
// caller who has got a lock, of the server that gave it, and only if somebody reads the log. What comes
// of it changes nothing.
func (k *Locker) noteEviction(key string) {
	ctx := context.Background()
	if !k.config.logger.Enabled(ctx, slog.LevelWarn) || k.asked.Swap(true) {
		return
	}
	k.life.behind(func() {
		b := k.budget()
		text, err := link.Call(ctx, k.link, &b, link.Urgent, func(ctx context.Context) (string, error) {
			return k.link.InfoOf(ctx, key, "memory")
		})
		if policy := evicts(text); err == nil && policy != "" {
			k.config.logger.LogAttrs(ctx, slog.LevelWarn, "lock: the server may evict locks when its memory is full: "+
				"set maxmemory-policy to noeviction", slog.String("maxmemory-policy", policy))
		}
	})
}

// evicts returns the policy by which a server evicts keys with a lifetime, or "" if it does not.
func evicts(info string) (policy string) {
	bounded := false
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "maxmemory":
			bounded = value != "0"
		case "maxmemory_policy":
			policy = value
		}
	}
	if !bounded || policy == "noeviction" {
		return ""
	}
	return policy
}
