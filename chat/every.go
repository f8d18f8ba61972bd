package chat

import (
	"context"
	"time"
)

// Every calls act at intervals, the first time after one, until ctx ends. Intervals that a slow act
// misses are left out.
func Every(ctx context.Context, interval time.Duration, act func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			act()
		}
	}
}
