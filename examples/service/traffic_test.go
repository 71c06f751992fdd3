package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// traffic reads and writes through the fleet, and beside it, and notes what it sees.
type traffic struct {
	f     *fleet
	ctx   context.Context
	stop  func() // returns when all of it has ended
	began time.Time

	mu            sync.Mutex // guards what follows
	answers       []answer
	changes       []change
	failures      []string
	cutOff        []span
	invalidations int64 // begun
}

func startTraffic(t *testing.T, f *fleet) *traffic {
	ctx, cancel := context.WithCancel(t.Context())
	w := &traffic{f: f, ctx: ctx, began: time.Now()}
	var all sync.WaitGroup
	for i := range f.nodes {
		for range clientsPerNode {
			all.Go(func() { w.repeat(20*time.Millisecond, 120*time.Millisecond, func() { w.read(i) }) })
		}
		all.Go(func() { w.watch(i) })
	}
	all.Go(func() { w.repeat(50*time.Millisecond, 150*time.Millisecond, w.put) })
	all.Go(func() { w.repeat(200*time.Millisecond, 400*time.Millisecond, func() { w.update(true) }) })
	all.Go(func() { w.repeat(200*time.Millisecond, 400*time.Millisecond, func() { w.update(false) }) })
	w.stop = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(w.stop)
	return w
}

// repeat does something again and again, with a pause before each time.
func (w *traffic) repeat(least, most time.Duration, do func()) {
	for w.goOn(least + rand.N(most-least)) {
		do()
	}
}

// goOn lets time pass, unless the traffic is stopped.
func (w *traffic) goOn(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.ctx.Done():
		return false
	}
}

func (w *traffic) now() time.Duration { return time.Since(w.began) }

func (w *traffic) note(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *traffic) fail(format string, args ...any) {
	w.note(func() { w.failures = append(w.failures, fmt.Sprintf("%v: ", w.now())+fmt.Sprintf(format, args...)) })
}

// read asks one node for a user, some more often than others.
func (w *traffic) read(node int) {
	r := rand.Float64()
	a := answer{key: int64(r * r * keys), node: node, sent: w.now()}
	u, resp := w.request(node, http.MethodGet, a.key, nil)
	if resp == nil {
		return
	}
	switch {
	case resp.StatusCode == http.StatusOK && u.ID != a.key:
		w.fail("asked for user %d, got %+v", a.key, u)
		return
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound:
		w.fail("GET of user %d from node %d: %s", a.key, node, resp.Status)
		return
	}
	age, err := toldAge(resp)
	if err != nil {
		w.fail("GET of user %d from node %d: %v", a.key, node, err)
		return
	}
	a.version, a.age, a.got = u.Version, age, w.now()
	w.note(func() { w.answers = append(w.answers, a) })
}

// toldAge is the last part of, for instance, "local, fresh, 1.2s old".
func toldAge(resp *http.Response) (time.Duration, error) {
	parts := strings.Split(strings.TrimSuffix(resp.Header.Get("X-Cache"), " old"), ", ")
	return time.ParseDuration(parts[len(parts)-1])
}

// request returns nil if there is no answer, which is a failure unless the node has been stopped.
func (w *traffic) request(node int, method string, key int64, body []byte) (u User, resp *http.Response) {
	n := w.f.nodes[node]
	if n.stopped.Load() != nil {
		return u, nil
	}
	sent := time.Now()
	req, err := http.NewRequest(method, n.user(key), bytes.NewReader(body))
	if err == nil {
		resp, err = w.f.client.Do(req)
	}
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			err = json.NewDecoder(resp.Body).Decode(&u)
		}
	}
	if err != nil {
		if n.owes(sent) {
			w.fail("%v", err)
		}
		return u, nil
	}
	return u, resp
}

// put changes a user through any node.
func (w *traffic) put() {
	key, node := rand.Int64N(keys), rand.IntN(nodes)
	w.note(func() { w.invalidations++ })
	u, resp := w.request(node, http.MethodPut, key, []byte(`{"name": "put"}`))
	switch {
	case resp == nil:
	case resp.StatusCode/100 != 2:
		w.fail("PUT of user %d to node %d: %s", key, node, resp.Status)
	default:
		w.changed(change{key: key, version: u.Version, node: node, told: resp.StatusCode == http.StatusOK})
	}
}

// update changes a row as another program would, which may know of the cache, or not.
func (w *traffic) update(tell bool) {
	c := change{key: rand.Int64N(keys), node: nobody}
	err := w.f.db.QueryRowContext(w.f.t.Context(), `UPDATE users SET name = 'updated', version = version + 1 WHERE id = $1 RETURNING version`, c.key).Scan(&c.version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return
	case err != nil:
		w.fail("UPDATE: %v", err)
		return
	}
	if tell {
		w.note(func() { w.invalidations++ })
		c.told = w.f.rdb.Del(w.f.t.Context(), w.f.users.cache.RedisKey(c.key)).Err() == nil
	}
	w.changed(c)
}

func (w *traffic) changed(c change) {
	c.done = w.now()
	w.note(func() { w.changes = append(w.changes, c) })
}
