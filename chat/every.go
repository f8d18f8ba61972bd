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

// Sleep waits, unless ctx ends before: then it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
