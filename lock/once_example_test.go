package lock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/lock"
)

// Receipt is what a payment has come to.
type Receipt struct {
	Order  int64
	Amount string
}

// charge stands for the call of a payment provider, which is given the id too: what cannot be promised here, it can.
func charge(_ context.Context, id string, order int64) (Receipt, error) {
	fmt.Println("charged for", id)
	return Receipt{order, "12.50 EUR"}, nil
}

// A payment is called back twice.
func ExampleOnce() {
	server, err := redistest.StartAny(redistest.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Stop()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	payments, err := lock.NewOnce[Receipt](rdb, lock.WithPrefix("once:pay:"), lock.WithWindow(72*time.Hour))
	if err != nil {
		panic(err)
	}
	defer payments.Close()

	ctx := context.Background()
	for range 2 {
		receipt, err := payments.Do(ctx, "evt_1", func(ctx context.Context) (Receipt, error) {
			return charge(ctx, "evt_1", 10086)
		})
		fmt.Println(receipt.Order, receipt.Amount, err)
	}
	// Output:
	// charged for evt_1
	// 10086 12.50 EUR <nil>
	// 10086 12.50 EUR <nil>
}
