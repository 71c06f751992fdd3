package main

import (
	"strings"
	"testing"
)

func TestEveryCommandOnTheWireIsCountedHoweverItIsCut(t *testing.T) {
	const get = "*2\r\n$3\r\nGET\r\n$4\r\n*1\r\n\r\n" // a key that looks like a command
	const ping = "*1\r\n$4\r\nPING\r\n"
	set := "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5000\r\n" + strings.Repeat("*2\r\n$", 1000) + "\r\n"
	empty := "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"
	stream := get + ping + set + empty + get
	for _, size := range []int{1, 2, 3, 7, 4096, len(stream)} {
		var f frame
		var got int64
		for rest := stream; rest != ""; rest = rest[min(size, len(rest)):] {
			got += f.feed([]byte(rest[:min(size, len(rest))]))
		}
		if got != 5 {
			t.Errorf("in pieces of %d bytes: %d commands, want 5", size, got)
		}
	}
}
