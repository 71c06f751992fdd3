package lock

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// meter counts what clients send, but for what connecting takes.
type meter struct{ commands, pipelines atomic.Int64 }

var _ redis.Hook = (*meter)(nil)

func (*meter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meter) count(cmds ...redis.Cmder) {
	for _, c := range cmds {
		if slices.Contains([]string{"evalsha", "eval", "time"}, c.Name()) {
			m.commands.Add(1)
		}
	}
}

func (m *meter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		m.count(c)
		return next(ctx, c)
	}
}

func (m *meter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		m.count(cmds...)
		m.pipelines.Add(1)
		return next(ctx, cmds)
	}
}
