package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells on standard error how far the run is: one line written over and over on a terminal, else a line a second.
type progress struct {
	out      io.Writer
	terminal bool
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// follow reports until the time is over or the context ends.
func (p *progress) follow(ctx context.Context, title string, d time.Duration, reads func() int64, db *database) {
	start, end := time.Now(), time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(p.interval())
	defer tick.Stop()
	defer p.end()
	for {
		select {
		case <-tick.C:
			running, loads := db.now()
			p.say("%s: %.1f of %.1f s, %d reads, %d queries, %d running", title,
				time.Since(start).Seconds(), d.Seconds(), reads(), loads, running)
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (p *progress) interval() time.Duration {
	if p.terminal {
		return 200 * time.Millisecond
	}
	return time.Second
}

func (p *progress) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// end clears the line for what is printed next.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
