package filecall

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSlots: a chat has maxTools calls, one more waits for the end of one, and another chat
// does not wait.
func TestSlots(t *testing.T) {
	var calls Calls
	begin := func(id chat.ID) (done func()) {
		_, done, err := calls.Begin(t.Context(), id)
		must.Do(t, err)
		return done
	}
	var all []func()
	for range maxTools {
		all = append(all, begin("a"))
	}
	begin("b")()
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, _, err := calls.Begin(short, "a")
	expect.True(t, errors.Is(err, context.DeadlineExceeded), "one call too many: %v", err)
	all[0]()
	all[0] = begin("a")
	expect.True(t, calls.UnderWay("a") && !calls.UnderWay("b"), "a has calls under way, b has none")
	for _, done := range all {
		done()
	}
	expect.True(t, !calls.UnderWay("a") && len(calls.chats) == 0, "calls are left: %v", calls.chats)
}

// TestCut: a reap cancels the running and waiting calls of its chat, and no other.
func TestCut(t *testing.T) {
	var calls Calls
	ctx, done, err := calls.Begin(t.Context(), "a")
	must.Do(t, err)
	defer done()
	other, otherDone, err := calls.Begin(t.Context(), "b")
	must.Do(t, err)
	defer otherDone()
	for range maxTools - 1 {
		_, done, err := calls.Begin(t.Context(), "a")
		must.Do(t, err)
		defer done()
	}
	waited := make(chan error)
	go func() {
		_, _, err := calls.Begin(context.Background(), "a")
		waited <- err
	}()
	for calls.count("a") != maxTools+1 {
		time.Sleep(time.Millisecond)
	}
	calls.Cut("a")
	expect.Is(t, <-waited, chat.ErrWrongPhase, "the call that waited")
	if cause := context.Cause(ctx); !errors.Is(cause, chat.ErrWrongPhase) || other.Err() != nil {
		t.Errorf("the call of a: %v, of b: %v", cause, other.Err())
	}
	calls.Cut("c") // which has none
}

func (f *Calls) count(id chat.ID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.chats[id].cuts)
}

// TestTidy: a call that was answered, or whose chat is being reaped, does not wait for its tool.
func TestTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls Calls
		ctx, done, err := calls.Begin(t.Context(), "a")
		must.Do(t, err)
		defer done()
		took := func(err error) time.Duration {
			began := time.Now()
			Tidy(ctx, err, nil) // which never ends
			return time.Since(began)
		}
		expect.Equal(t, took(nil), 0, "after an answer")
		expect.Equal(t, took(chat.ErrBusy), tidyTime, "without an answer")
		calls.Cut("a")
		expect.Equal(t, took(chat.ErrBusy), 0, "in a reap")
	})
}
