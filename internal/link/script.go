package link

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// ScriptCall is one call of a script that touches one key.
type ScriptCall struct {
	Script *redis.Script
	Key    string
	Args   []any
}

// Reply is what one script call answered.
type Reply struct {
	Values []any
	Err    error
}

// Run calls one script, and loads it where the server does not know it.
func (c ScriptCall) Run(ctx context.Context, client redis.Scripter) ([]any, error) {
	return c.Script.Run(ctx, client, []string{c.Key}, c.Args...).Slice()
}

// RunAll calls scripts in one pipeline. A server that has forgotten a script answers
// NOSCRIPT for each of its calls in the pipeline: those are made again one by one.
func RunAll(ctx context.Context, client redis.UniversalClient, calls []ScriptCall) []Reply {
	replies := make([]Reply, len(calls))
	cmds := make([]*redis.Cmd, len(calls))
	pipe := client.Pipeline()
	for i, c := range calls {
		cmds[i] = c.Script.EvalSha(ctx, pipe, []string{c.Key}, c.Args...)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	for i, cmd := range cmds {
		replies[i].Values, replies[i].Err = cmd.Slice()
		if errors.Is(replies[i].Err, redis.Nil) || !redis.HasErrorPrefix(replies[i].Err, "NOSCRIPT") {
			continue
		}
		replies[i].Values, replies[i].Err = calls[i].Run(ctx, client)
	}
	return replies
}
