package terminal

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestLastOutputIsKept: what is in the fifo when a session has ended is kept, however late chatd
// comes to read it.
func TestLastOutputIsKept(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "log")
	must.Do(t, unix.Mkfifo(fifo, 0o600))
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	l := must.Get(logs.Record("a", fifo))(t)
	writer := must.Get(os.OpenFile(fifo, os.O_WRONLY, 0))(t)
	defer writer.Close()
	must.Get(writer.WriteString("bye"))(t)
	if p, err := logs.Piece("a", -1); err != nil || !p.Recording {
		t.Errorf("a terminal with a writer: %+v, %v", p, err)
	}
	ctx, ended := context.WithCancel(t.Context())
	ended()
	l.Keep(ctx, Keeping{Alive: func() bool { return true }, Printed: func() {}})
	<-l.over
	if p, err := logs.Piece("a", 0); err != nil || p.Text != "bye" || p.Recording {
		t.Errorf("%+v is kept, %v", p, err)
	}
	expect.True(t, len(logs.books) == 0, "logs that nobody uses: %v", logs.books)
}

// TestPrintedCounts: what is printed all the time counts as use every few seconds, and not at the
// wake, which counts itself.
func TestPrintedCounts(t *testing.T) {
	wake := time.Unix(1_000_000, 0)
	k, counted := keepState{printed: wake}, 0
	for after := time.Duration(0); after <= 2*printedEvery; after += printedEvery / 10 {
		k.countUse(wake.Add(after), func() { counted++ })
	}
	if counted != 2 {
		t.Errorf("it counts %d times in %s, want 2", counted, 2*printedEvery)
	}
}

// TestNextSessionIsKept: a session that ends late leaves the recording of the next one alone.
func TestNextSessionIsKept(t *testing.T) {
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	before, now := recorded(t, logs), recorded(t, logs)
	ctx, ended := context.WithCancel(t.Context())
	ended()
	before.log.Keep(ctx, Keeping{})
	if p, err := logs.Piece("a", -1); err != nil || !p.Recording {
		t.Errorf("the session is not recorded any more: %+v, %v", p, err)
	}
	now.log.Keep(ctx, Keeping{})
	if p, err := logs.Piece("a", -1); err != nil || p.Recording {
		t.Errorf("asleep, it is recorded: %+v, %v", p, err)
	}
}
