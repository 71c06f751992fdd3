package link

import (
	"context"

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
	values, err := c.Script.EvalSha(ctx, client, []string{c.Key}, c.Args...).Slice()
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return values, err
	}
	c.refused()
	return c.Script.Eval(ctx, client, []string{c.Key}, c.Args...).Slice()
}

// refused tells arguments that count how often they are sent that once was for nothing.
func (c ScriptCall) refused() {
	for _, a := range c.Args {
		if counts, ok := a.(interface{ Refused() }); ok {
			counts.Refused()
		}
	}
}

// RunAll calls scripts in one pipeline. A server that has forgotten a script answers NOSCRIPT
// for each of its calls: those are made again in a second pipeline, which brings their text.
func RunAll(ctx context.Context, client redis.UniversalClient, calls []ScriptCall) []Reply {
	replies := make([]Reply, len(calls))
	all := make([]int, len(calls))
	for i := range calls {
		all[i] = i
	}
	unknown := pipeline(ctx, client, calls, replies, all, (*redis.Script).EvalSha)
	if len(unknown) > 0 {
		pipeline(ctx, client, calls, replies, unknown, (*redis.Script).Eval)
	}
	return replies
}

// evaluator is how a script is called: by its hash, or by its text.
type evaluator func(*redis.Script, context.Context, redis.Scripter, []string, ...any) *redis.Cmd

// pipeline makes the calls with these indexes, and returns those whose script is not known.
func pipeline(ctx context.Context, client redis.UniversalClient, calls []ScriptCall, replies []Reply, which []int,
	eval evaluator) (unknown []int) {
	pipe := client.Pipeline()
	cmds := make([]*redis.Cmd, len(which))
	for n, i := range which {
		cmds[n] = eval(calls[i].Script, ctx, pipe, []string{calls[i].Key}, calls[i].Args...)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	for n, i := range which {
		replies[i].Values, replies[i].Err = cmds[n].Slice()
		if redis.HasErrorPrefix(replies[i].Err, "NOSCRIPT") {
			calls[i].refused()
			unknown = append(unknown, i)
		}
	}
	return unknown
}
