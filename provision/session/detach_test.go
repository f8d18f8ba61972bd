package session

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
)

// TestLater: Do returns the error of work that ends soon; slower work goes on without its caller
// to its end.
func TestLater(t *testing.T) {
	l := NewLater(slog.New(slog.DiscardHandler))
	failed := errors.New("failed")
	never := func(context.Context) error {
		t.Error("what comes after was done for a caller who is there")
		return nil
	}
	fail := func(context.Context) error { return failed }
	if late, err := l.Do("soon", time.Hour, fail, never); late || !errors.Is(err, failed) {
		t.Errorf("soon: %v, %v", late, err)
	}
	held, after := make(chan struct{}), make(chan struct{})
	late, err := l.Do("late", time.Millisecond, func(context.Context) error { <-held; return nil },
		func(context.Context) error { close(after); return nil })
	expect.True(t, late && err == nil, "late: %v, %v", late, err)
	close(held)
	<-after
	stay := func(ctx context.Context) error { <-ctx.Done(); return nil }
	if late, _ := l.Do("for ever", time.Millisecond, stay, nil); !late {
		t.Error("for ever: it was waited for")
	}
	l.Close() // it ends what would go on for ever
}
