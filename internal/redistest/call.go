package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// call is a command or a pipeline on its way through a hook.
type call struct {
	cmds []redis.Cmder
	next redis.ProcessPipelineHook
	went *bool // send was called: the commands carry their own outcome
}

func single(next redis.ProcessHook, cmd redis.Cmder) call {
	one := func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) }
	return call{cmds: []redis.Cmder{cmd}, next: one, went: new(bool)}
}

func pipeline(next redis.ProcessPipelineHook, cmds []redis.Cmder) call {
	return call{cmds: cmds, next: next, went: new(bool)}
}

// send executes the call for its caller.
func (c call) send(ctx context.Context) error {
	*c.went = true
	return c.next(ctx, c.cmds)
}

func (c call) sent() bool { return *c.went }

// copy executes the call once more, for nobody: the caller's commands stay
// untouched. It returns the copies, without the MULTI and EXEC of a transaction.
func (c call) copy(ctx context.Context) []*redis.Cmd {
	var all []redis.Cmder
	var done []*redis.Cmd
	for _, cmd := range c.cmds {
		switch cmd.Name() {
		case "multi": // go-redis expects these two to have just these types
			all = append(all, redis.NewStatusCmd(ctx, cmd.Args()...))
		case "exec":
			all = append(all, redis.NewSliceCmd(ctx, cmd.Args()...))
		default:
			twin := redis.NewCmd(ctx, cmd.Args()...)
			all, done = append(all, twin), append(done, twin)
		}
	}
	err := c.next(ctx, all)
	for _, twin := range done {
		if twin.Err() == nil && twin.Val() == nil {
			twin.SetErr(err)
		}
	}
	return done
}
