package rebuild

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestWhoComesAsTheLastOneLeavesFliesAnew: the flight that he has joined ends with those who began it.
func TestWhoComesAsTheLastOneLeavesFliesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flights{}
		end := make(chan struct{})
		s := f.board("k", func(gone context.Context) (Answer, error) {
			<-gone.Done()
			<-end
			return Answer{}, errDeserted
		})
		s.leave()
		came := make(chan error, 1)
		go func() {
			_, err := f.share(t.Context(), "k", func(context.Context) (Answer, error) { return Answer{State: Fresh}, nil })
			came <- err
		}()
		synctest.Wait()
		close(end)
		must(t, <-came)
		equal(t, "crowds left", len(f.crowds), 0)
	})
}

func TestAFlightIsDesertedOnlyWhenTheLastOneHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flights{}
		gone := make(chan struct{})
		fly := func(ctx context.Context) (Answer, error) {
			<-ctx.Done()
			close(gone)
			return Answer{}, errDeserted
		}
		seats := []*seat{f.board("k", fly), f.board("k", fly), f.board("k", fly)}
		for _, s := range seats {
			synctest.Wait()
			select {
			case <-gone:
				t.Fatal("deserted before the last one had left")
			default:
			}
			s.leave()
		}
		<-gone
	})
}
