package cache_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/levee-cache/levee/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it has much to say about the outages that tests make
	goleak.VerifyTestMain(redistest.Main(m, nil))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
