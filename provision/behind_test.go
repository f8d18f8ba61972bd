package provision

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// TestBehind: what is done soon answers; what is not goes on without its caller, and is finished.
func TestBehind(t *testing.T) {
	m := &Manager{log: slog.New(slog.DiscardHandler)}
	m.runs.ctx, m.runs.stop = context.WithCancel(t.Context())
	failed := errors.New("failed")
	never := func(context.Context) error {
		t.Error("what comes after was done for a caller who is there")
		return nil
	}
	if late, err := m.behind("soon", time.Hour, func(context.Context) error { return failed }, never); late || !errors.Is(err, failed) {
		t.Errorf("soon: %v, %v", late, err)
	}
	held, after := make(chan struct{}), make(chan struct{})
	late, err := m.behind("late", time.Millisecond, func(context.Context) error { <-held; return nil }, func(context.Context) error { close(after); return nil })
	if !late || err != nil {
		t.Errorf("late: %v, %v", late, err)
	}
	close(held)
	<-after
	if late, _ := m.behind("for ever", time.Millisecond, func(ctx context.Context) error { <-ctx.Done(); return nil }, nil); !late {
		t.Error("for ever: it was waited for")
	}
	m.leaveRuns() // it ends what would go on for ever
}
