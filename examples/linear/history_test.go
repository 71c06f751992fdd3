package linear

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// op is a read, or a write: an UPDATE and then a Delete. Its times are those of now.
type op struct {
	Node  int
	Write bool          `json:",omitempty"`
	Start time.Duration // before it
	Done  time.Duration `json:",omitempty"` // of a write: when the UPDATE had returned
	End   time.Duration // after it
	Value int64         // that was read, or written: each write adds 1, so more is newer

	Unconfirmed bool          `json:",omitempty"` // the Delete has failed, and said that others
	Bound       time.Duration `json:",omitempty"` // may serve the old value for so long

	Failed      string `json:",omitempty"` // what must not happen at all
	RedisErrors int64  // of the process so far
	Source      string `json:",omitempty"` // of a read
}

func (o op) String() string {
	if o.Write {
		return fmt.Sprintf("value %d (updated on node %d at %v, deleted at %v)", o.Value, o.Node, o.Done, o.End)
	}
	return fmt.Sprintf("node %d read %d (%s) from %v to %v", o.Node, o.Value, o.Source, o.Start, o.End)
}

// journal is where one process writes down what it has done: in a file, which survives it.
type journal struct{ file *os.File }

func openJournal(name string) (journal, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return journal{f}, err
}

// add writes the record in one call, so that those of several goroutines do not mix.
func (j journal) add(o op) {
	line, err := json.Marshal(o)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// reading is a journal as far as it has been read.
type reading struct {
	name string
	at   int64
}

// more returns what has been added. A record that is not complete is that of a killed process, or
// still being written.
func (r *reading) more() (ops []op, err error) {
	f, err := os.Open(r.name)
	if os.IsNotExist(err) {
		return nil, nil // killed before it began
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	added := make([]byte, info.Size()-r.at)
	if _, err := f.ReadAt(added, r.at); err != nil && len(added) > 0 {
		return nil, err
	}
	added = added[:bytes.LastIndexByte(added, '\n')+1]
	r.at += int64(len(added))
	for line := range bytes.Lines(added) {
		var o op
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, err
		}
		ops = append(ops, o)
	}
	return ops, nil
}
