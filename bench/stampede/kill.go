package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A scenario of -kill: the nodes are processes, and the one whose load runs is killed half-way through it.
type scenario struct {
	*run
	name   string
	stale  time.Duration
	family *family
	db     *database
	socket *dbSocket
}

// killing is what came of it.
type killing struct {
	result
	victim, pid int
	first, last time.Duration // from the kill until one, and every, surviving node had the next value
	longest     time.Duration // a survivor's longest read
	waited      int64         // survivors' reads that took as long as a load, or longer
}

// killHolders plays both scenarios: with nothing to serve meanwhile, and with a stale value at hand.
func (r *run) killHolders(ctx context.Context, out io.Writer) error {
	if !r.json {
		fmt.Fprintf(out, "%s\n\n", r.title(r.server.name))
	}
	for _, s := range []*scenario{
		{run: r, name: "kill-cold"},
		{run: r, name: "kill-stale", stale: max(r.stale, 2*r.bound())}, // nothing goes out of its window meanwhile
	} {
		k, err := s.play(ctx)
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := s.tell(out, k); err != nil {
			return err
		}
	}
	return nil
}

// bound is what a crash may cost the others: the rest of the lease, the pause until they look again, and the load itself.
func (r *run) bound() time.Duration { return lease + poll + r.load }

func (s *scenario) play(ctx context.Context) (k killing, err error) {
	s.db = newDatabase(s.load, s.ttl, s.dbConns)
	if s.socket, err = listenDB(s.db); err != nil {
		return k, err
	}
	defer s.socket.close()
	s.family, err = startFamily(ctx, s.nodes, s.opening(), s.line.out)
	defer s.family.close()
	if err != nil {
		return k, err
	}
	if err := s.warm(ctx); err != nil {
		return k, err
	}
	defer s.line.end()
	if err := s.strike(ctx, &k); err != nil {
		return k, err
	}
	return k, s.collect(ctx, &k)
}

func (s *scenario) opening() opening {
	return opening{
		Plan:  plan{TTL: s.ttl, Stale: s.stale, Space: s.space + "-" + s.name, Callers: s.callers},
		Redis: s.server.address, Database: s.socket.address(), Think: s.think,
	}
}

// patience is how long to wait for what takes no longer than a load.
func (s *scenario) patience() time.Duration { return 15*time.Second + s.bound() }

// warm waits until every node has served the first value, then lets the count begin.
func (s *scenario) warm(ctx context.Context) error {
	ready := func(e childEvent) bool { return e.Ready }
	if err := s.family.awaitEach(ctx, "start of the nodes", s.patience(), ready); err != nil {
		return err
	}
	if err := s.family.tell("warm"); err != nil {
		return err
	}
	served := func(e childEvent) bool { return e.Value > 0 }
	if err := s.family.awaitEach(ctx, "first value", s.patience(), served); err != nil {
		return err
	}
	s.db.reset()
	return s.family.tell("count")
}

// strike waits for the next load, kills its node half-way, and measures until the others have the value after that.
func (s *scenario) strike(ctx context.Context, k *killing) error {
	holder, err := s.nextLoad(ctx)
	if err != nil {
		return err
	}
	time.Sleep(s.load / 2)
	victim, err := s.family.kill(holder)
	killed := time.Now()
	if err != nil {
		return err
	}
	known, running := s.db.state()
	if running == 0 {
		return errors.New("the load had ended before its node could be killed: give a longer -load")
	}
	k.victim, k.pid = victim.number, victim.cmd.Process.Pid
	s.line.say("%s: killed node %d (process %d) %v into its load", s.name, k.victim, k.pid, s.load/2)
	return s.family.awaitEach(ctx, "value after the kill", s.patience(), func(e childEvent) bool {
		if e.Value <= known {
			return false
		}
		k.last = e.at.Sub(killed)
		if k.first == 0 {
			k.first = k.last
		}
		return true
	})
}

// nextLoad waits for a load that begins from now on and tells whose it is.
func (s *scenario) nextLoad(ctx context.Context) (number int, err error) {
	select {
	case <-s.socket.arrivals: // an old one
	default:
	}
	select {
	case number = <-s.socket.arrivals:
		return number, nil
	case <-time.After(s.patience() + s.ttl):
		return 0, errors.New("no load after the value passed its TTL")
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// collect ends the survivors' work and adds up what their callers saw since the count began.
func (s *scenario) collect(ctx context.Context, k *killing) error {
	if err := s.family.tell("stop"); err != nil {
		return err
	}
	seen, commands := new(recording), int64(0)
	err := s.family.awaitEach(ctx, "end of the nodes", s.patience(), func(e childEvent) bool {
		if e.Summary == nil {
			return false
		}
		e.Summary.addTo(seen)
		commands += e.Summary.Commands
		return true
	})
	k.result = newResult(s.name, s.server.name, s.settings, seen, s.db.totals(), commands)
	k.longest, k.waited = seen.max, seen.longer(s.load)
	return err
}

func (s *scenario) tell(out io.Writer, k killing) error {
	if k.firstError != nil {
		s.line.say("%s: first error: %v", s.name, k.firstError)
	}
	if s.json {
		return jsonLines(out)(k.result)
	}
	had := "nothing to serve meanwhile"
	if s.stale > 0 {
		had = fmt.Sprintf("a stale value at hand (for %v)", s.stale)
	}
	_, err := fmt.Fprintf(out, `kill -9 of the lease holder, %s
  node %d (process %d) was killed %v into its load
  another node had the value after %v, the last one after %v; lease + poll + load is %v: %s
  reads %d, of them stale %d, errors %d; the longest took %v, %d waited for a load

`, had, k.victim, k.pid, s.load/2, round(k.first), round(k.last), s.bound(), verdict(k.first <= s.bound()),
		k.Reads, k.Stale, k.Errors, round(k.longest), k.waited)
	return err
}

func verdict(within bool) string {
	if within {
		return "within"
	}
	return "TOO LATE"
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
