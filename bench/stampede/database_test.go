package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueriesQueueForConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(time.Second, time.Minute, 2)
		began := time.Now()
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				if value, err := d.query(t.Context(), "k"); err != nil {
					t.Error(value, err)
				}
			})
		}
		synctest.Wait()
		if running, loads := d.now(); running != 6 || loads != 6 {
			t.Errorf("%d running, %d asked", running, loads)
		}
		d.quiesce()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("6 queries, 2 at once, took %v", took)
		}
		group.Wait()
		if got := d.totals(); got != (counts{loads: 6, expiries: 1, peak: 6}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestACancelledQueryBringsNoValueAndFreesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(time.Minute, time.Hour, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if value, err := d.query(ctx, "k"); err == nil {
			t.Errorf("got %q", value)
		}
		if _, err := d.query(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		if got := d.totals(); got.loads != 2 || got.expiries != 1 {
			t.Errorf("%+v, want the second load as one too many", got)
		}
	})
}

func TestTotalsAddKeysButNotTheirPeaks(t *testing.T) {
	d := newDatabase(0, time.Minute, 0)
	for _, key := range []string{"a", "b", "b", "c"} {
		if _, err := d.query(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.totals(); got != (counts{loads: 4, expiries: 3, peak: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestAValueTellsItsKeyAndItsNumber(t *testing.T) {
	if n, ok := decode("key-1", encode("key-1", 42)); !ok || n != 42 {
		t.Error(n, ok)
	}
	for _, wrong := range []string{"", "key-1", "key-1#", "key-1#x", "key-11#4", "key-2#4", "key-1#4 "} {
		if n, ok := decode("key-1", wrong); ok {
			t.Errorf("%q is taken for value %d of key-1", wrong, n)
		}
	}
}
