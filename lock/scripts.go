package lock

import (
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// lua holds the scripts, one file each. Each touches one key and can be repeated blindly: the
// client may send it twice, and the first attempt may arrive last.
//
//go:embed lua/*.lua
var lua embed.FS

// What all nodes must agree on is part of the scripts.
const (
	retention = 5 * time.Second // what a lock remembers after its end: a release may be repeated
	claim     = 2 * time.Second // what a waiter gets that was granted the lock, before it is heard of
	alive     = 3 * time.Second // how long an entry of the queue counts after it was last refreshed
	queueCap  = 128             // processes in the queue; more of them poll
)

// scripts are ready to run on any server from Redis 6.0 up.
var scripts = struct {
	acquire, renew, release, breaking, inspect *redis.Script
	start, store, forget                       *redis.Script // of a Once
}{
	acquire:  script("acquire"),
	renew:    script("renew"),
	release:  script("release"),
	breaking: script("break"),
	inspect:  script("inspect"),
	start:    redis.NewScript(text("begin", "done", "start", "acquire_quick", "prelude", "acquire")),
	store:    redis.NewScript(text("begin", "done", "prelude", "store")),
	forget:   redis.NewScript(text("begin", "done", "prelude", "forget")),
}

func script(name string) *redis.Script { return redis.NewScript(textOf(name)) }

// textOf is all that one script of locks is made of.
func textOf(name string) string { return text("begin", name+"_quick", "prelude", name) }

// text is a script that is made of these files.
func text(files ...string) string {
	constants := fmt.Sprintf("local SIZE, ENTRY, CAP, MAGIC, DONE, NOTOKEN, NOBODY = %d, %d, %d, '%s', '%s', '%s', '%s'\n",
		lockSize, entrySize, queueCap, magic, magicDone, noToken, holderText(""))
	constants += fmt.Sprintf("local RETENTION, CLAIM, ALIVE = %d, %d, %d\n",
		retention.Milliseconds(), claim.Milliseconds(), alive.Milliseconds())
	var all strings.Builder
	for _, name := range files {
		all.WriteString(source(name))
	}
	return constants + placed(all.String())
}

// source is the text of a file; only some scripts have a quick one.
func source(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil && !strings.HasSuffix(name, "_quick") {
		panic("bug: " + err.Error()) // the file is compiled in
	}
	return string(text)
}
