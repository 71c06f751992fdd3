package redistest

import (
	"bytes"
	"sync"
)

// lines collects what a process prints, line by line; it is the io.Writer of
// its output. Waiting for more is done on the channel that next returns.
type lines struct {
	mu    sync.Mutex // guards everything below
	part  []byte     // the line that is not complete
	ready []string
	more  chan struct{} // closed when something is added; nil if nobody waits
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			break
		}
		l.ready, l.part = append(l.ready, string(line)), rest
	}
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return len(p), nil
}

// next takes the first line; without one it returns a channel that is closed
// when it is worth asking again.
func (l *lines) next() (line string, ok bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ready) > 0 {
		line, l.ready = l.ready[0], l.ready[1:]
		return line, true, nil
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return "", false, l.more
}

// text is what was printed and not taken yet.
func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	for _, line := range l.ready {
		b.WriteString(line + "\n")
	}
	b.Write(l.part)
	return b.String()
}
