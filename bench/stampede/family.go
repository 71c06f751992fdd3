package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// family is the node processes of one scenario, children of this one.
type family struct {
	children []*child
	events   chan childEvent
	closed   chan struct{} // nobody takes events any more
	reading  sync.WaitGroup
	abandon  context.CancelFunc // kills what does not end by itself
}

type child struct {
	number int
	cmd    *exec.Cmd
	input  io.WriteCloser
	orders *json.Encoder
	dead   bool // killed by us
}

type childEvent struct {
	event
	from *child
	at   time.Time
	gone bool // its output has ended
}

// startFamily starts n processes of this very program. Close the family also after an error.
func startFamily(ctx context.Context, n int, o opening, log io.Writer) (*family, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &family{events: make(chan childEvent, 64), closed: make(chan struct{}), abandon: cancel}
	for number := range n {
		o.Number = number
		if err := f.start(ctx, o, log); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *family) start(ctx context.Context, o opening, log io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), nodeProcess+"=1")
	cmd.Stderr = log
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c := &child{number: o.Number, cmd: cmd, input: input, orders: json.NewEncoder(input)}
	f.children = append(f.children, c)
	f.reading.Go(func() { f.listen(c, output) })
	return c.orders.Encode(order{Open: &o})
}

func (f *family) listen(c *child, output io.Reader) {
	lines := json.NewDecoder(output)
	for gone := false; !gone; {
		e := childEvent{from: c}
		gone = lines.Decode(&e.event) != nil
		e.at, e.gone = time.Now(), gone
		select {
		case f.events <- e:
		case <-f.closed:
			return
		}
	}
}

// tell gives all that live the same order.
func (f *family) tell(do string) error {
	var faults []error
	for _, c := range f.living() {
		faults = append(faults, c.orders.Encode(order{Do: do}))
	}
	return errors.Join(faults...)
}

func (f *family) living() (living []*child) {
	for _, c := range f.children {
		if !c.dead {
			living = append(living, c)
		}
	}
	return living
}

// kill is kill -9.
func (f *family) kill(number int) (*child, error) {
	c := f.children[number]
	c.dead = true
	return c, c.cmd.Process.Kill()
}

// awaitEach waits until take has said yes once for every living child.
func (f *family) awaitEach(ctx context.Context, what string, limit time.Duration, take func(childEvent) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: not within %v", what, limit))
	defer cancel()
	for waiting := f.numbers(); len(waiting) > 0; {
		select {
		case e := <-f.events:
			if err := e.fault(); err != nil {
				return err
			}
			if waiting[e.from.number] && take(e) {
				delete(waiting, e.from.number)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (f *family) numbers() map[int]bool {
	numbers := map[int]bool{}
	for _, c := range f.living() {
		numbers[c.number] = true
	}
	return numbers
}

// fault is what a child complains of; that one we killed ends is none.
func (e childEvent) fault() error {
	switch {
	case e.Error != "":
		return fmt.Errorf("node %d: %s", e.from.number, e.Error)
	case e.gone && !e.from.dead:
		return fmt.Errorf("node %d: ended by itself", e.from.number)
	}
	return nil
}

// close ends all children and waits for them.
func (f *family) close() {
	close(f.closed)
	for _, c := range f.children {
		_ = c.input.Close()
	}
	timer := time.AfterFunc(5*time.Second, f.abandon)
	f.reading.Wait()
	for _, c := range f.children {
		_ = c.cmd.Wait() // how a node ended does not matter any more
	}
	timer.Stop()
	f.abandon()
}
