package rebuild

import (
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// lua holds the scripts, one file each. Each touches one key and can be repeated blindly: the
// client may send it twice, and the first attempt may arrive last.
//
//go:embed lua/*.lua
var lua embed.FS

// scripts are ready to run on any server from Redis 6.0 up.
var scripts = struct {
	acquire, renew, commit, pass, fail, release, remove, expire, seize, generation *redis.Script
}{
	acquire: script("acquire"),
	renew:   script("renew"),
	commit:  script("commit"),
	pass:    script("pass"),
	fail:    script("fail"),
	release: script("release"),
	remove:  script("delete"),
	expire:  script("expire"),
	seize:   script("seize"),

	generation: redis.NewScript(source("generation")),
}

func script(name string) *redis.Script {
	sizes := fmt.Sprintf("local SIZE, MAGIC, NOTOKEN, NOROW = %d, '%s', '%s', '%016x'\n", HeaderSize, magic, noToken, 0)
	return redis.NewScript(sizes + placed(source("prelude")+source(name)))
}

func source(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("bug: " + err.Error()) // the file is compiled in
	}
	return string(text)
}
