package roottest

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/termsafe"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// attachment is a client attached to a chat's terminal.
type attachment struct {
	mu   sync.Mutex
	seen strings.Builder
	run  chan string
	end  context.CancelFunc
	over chan error
}

func attachTo(t *testing.T, m *manager, id chat.ID, readOnly bool) *attachment {
	t.Helper()
	ctx, end := context.WithCancel(operator(t.Context()))
	a := &attachment{run: make(chan string, 1), over: make(chan error, 1), end: end}
	spec := chat.Attach{TTY: chat.TTY{Rows: 30, Cols: 100}, ReadOnly: readOnly, Started: func(run string) { a.run <- run }}
	go func() {
		_, err := m.Attach(ctx, id, spec, func(_ string, p []byte) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.seen.Write(p)
		})
		a.over <- err
	}()
	t.Cleanup(end)
	return a
}

func (a *attachment) sees(t *testing.T, want string) string {
	t.Helper()
	var seen string
	if !comes(func() bool {
		a.mu.Lock()
		seen = a.seen.String()
		a.mu.Unlock()
		return strings.Contains(termsafe.String(seen, termsafe.Plain), want)
	}) {
		t.Fatalf("never saw %q in %q", want, seen)
	}
	return seen
}

// TestAttach: two operators at one terminal, one of whom may only look; a size, a hostile
// program, letting go, and the end of the session.
func TestAttach(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	c := create(t, m, "attach", "default")
	a, looks := attachTo(t, m, c.ID, false), attachTo(t, m, c.ID, true)
	run, lookRun := <-a.run, <-looks.run
	typeIn := func(run, text string) {
		t.Helper()
		must.Do(t, m.WriteStdin(ctx, c.ID, run, io.NopCloser(strings.NewReader(text)), false))
	}
	a.sees(t, "$")
	looks.sees(t, "$")
	typeIn(lookRun, "echo not for me\r")
	typeIn(run, "echo $((6*7)) is; tput cols; tty\r")
	a.sees(t, "42 is")
	looks.sees(t, "42 is")
	a.sees(t, "120")
	expect.True(t, !strings.Contains(looks.sees(t, "120"), "not for me"), "who may only look has typed")
	must.Do(t, m.SignalRun(ctx, c.ID, run, chat.RunSignal{Signal: "WINCH", TTY: &chat.TTY{Rows: 20, Cols: 77}}))
	typeIn(run, "clear; echo $(tput cols) st''ays\r")
	a.sees(t, "120 stays")
	// The program that owns the operator's terminal filters the output, see package termsafe.
	since := endOfLog(t, m, c.ID)
	typeIn(run, `printf '\033]52;c;aGk=\a\033]0;t\a'; echo har''mless`+"\r")
	if seen := termsafe.String(a.sees(t, "harmless"), termsafe.Full); strings.Contains(seen, "\x1b]") || strings.Contains(seen, "\x1b[c") || strings.Contains(seen, "\x1b[>") {
		t.Errorf("came through: %q", seen)
	}
	a.end()
	expect.Is(t, <-a.over, nil, "letting go")
	promptAfter(t, m, c.ID, since, "harmless")
	if got := typed(t, m, c.ID, "echo still $((6*7))"); !strings.Contains(got.Text, "still 42") {
		t.Errorf("after letting go: %+v", got)
	}
	leave(t, m, c.ID)
	expect.Is(t, <-looks.over, nil, "the end of the session")
	expect.Is(t, expect.Err(m.Attach(ctx, c.ID, chat.Attach{}, nil)), chat.ErrInvalid, "without a size")
}
