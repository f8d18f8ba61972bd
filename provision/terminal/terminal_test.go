package terminal

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"github.com/chatd/chatd/tmux"
)

// recorded is a terminal of chat a whose output is kept; tmux is never asked.
func recorded(t *testing.T, logs *Logs) *Terminal {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "log")
	must.Do(t, unix.Mkfifo(fifo, 0o600))
	r := must.Get(logs.Record("a", fifo))(t)
	t.Cleanup(func() { _ = r.fifo.Close() })
	term := must.Get(logs.Terminal("a", nil, r))(t)
	return term
}

// TestOneWaits: of two callers the second types after the first has its answer, or is refused when
// its own time ends; a chat in which somebody waits is at work.
func TestOneWaits(t *testing.T) {
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	term := recorded(t, logs)
	in := func(limit time.Duration) chat.Input {
		return chat.Input{Wait: &chat.Wait{Until: chat.UntilQuiet, Max: chat.Duration(limit)}}
	}
	typing, answer, failed := make(chan struct{}), make(chan struct{}), errors.New("failed")
	ended := make(chan error, 1)
	go func() {
		do := func(func(bool)) (tmux.Front, error) {
			close(typing)
			<-answer
			return tmux.Front{}, failed
		}
		_, err := term.Answered(t.Context(), in(time.Hour), nil, do)
		ended <- err
	}()
	<-typing
	expect.True(t, logs.InUse("a") && !logs.InUse("b"), "nobody waits, or in another chat")
	do := func(func(bool)) (tmux.Front, error) {
		t.Error("two type and wait")
		return tmux.Front{}, nil
	}
	_, err := term.Answered(t.Context(), in(time.Millisecond), nil, do)
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), errWaited.Error()),
		"a second caller: %v", err)
	close(answer)
	if err := <-ended; err != failed {
		t.Errorf("a failure to type: %v", err)
	}
}

// TestTypingIsUse: a terminal is in use from when a caller opens it until it closes it, also where
// the caller waits for nothing.
func TestTypingIsUse(t *testing.T) {
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	expect.True(t, !logs.InUse("a"), "nobody has opened it")
	term := must.Get(logs.Terminal("a", nil, nil))(t)
	other := must.Get(logs.Terminal("a", nil, nil))(t)
	other.Close()
	expect.True(t, logs.InUse("a") && !logs.InUse("b"), "nobody uses it, or another chat's")
	term.Close()
	expect.True(t, !logs.InUse("a"), "somebody uses it")
}

// TestWaitUnrecorded: a wait without a recording is refused.
func TestWaitUnrecorded(t *testing.T) {
	term := must.Get(NewLogs(t.TempDir(), slog.New(slog.DiscardHandler)).Terminal("a", nil, nil))(t)
	_, err := term.Answered(t.Context(), chat.Input{Wait: &chat.Wait{}}, nil,
		func(func(bool)) (tmux.Front, error) { t.Error("it types"); return tmux.Front{}, nil })
	expect.True(t, errors.Is(err, chat.ErrWrongPhase), "a wait for what nobody keeps: %v", err)
}

// TestTypeInTurns: two callers, each with a terminal of the chat, never type at the same time.
func TestTypeInTurns(t *testing.T) {
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	asked, answer := make(chan struct{}), make(chan struct{})
	server := tmux.New("socket", func(context.Context, []byte, []string) ([]byte, error) {
		asked <- struct{}{}
		<-answer
		return nil, errors.New("no server")
	})
	typing := func(ctx context.Context) chan error {
		term := must.Get(logs.Terminal("a", server, nil))(t)
		ended := make(chan error, 1)
		go func() {
			defer term.Close()
			_, err := term.Type(ctx, chat.Input{Text: "x"}, func(bool) {})
			ended <- err
		}()
		return ended
	}
	first := typing(t.Context())
	<-asked
	ctx, leave := context.WithCancel(t.Context())
	second := typing(ctx)
	select {
	case <-asked:
		t.Error("two type at the same time")
	case <-time.After(20 * time.Millisecond):
	}
	leave()
	expect.Is(t, <-second, chat.ErrBusy, "a caller that left before its turn")
	close(answer)
	if err := <-first; err == nil || errors.Is(err, chat.ErrBusy) {
		t.Errorf("a server that is not there: %v", err)
	}
}
