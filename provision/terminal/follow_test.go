package terminal

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestFollow: a follower gets each byte once, from where it asked, with no character cut, and
// learns that the chat was reaped.
func TestFollow(t *testing.T) {
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	say := func(words string) { logs.Say("a", words) }
	say("one")
	pieces := make(chan chat.Log)
	ended := make(chan error, 1)
	go func() {
		out := func(p chat.Log) error { pieces <- p; return nil }
		ended <- logs.Follow(t.Context(), "a", 3, out)
	}()
	if p := <-pieces; p.Text != "chatd: one]\r\n" || p.From != 3 || p.Recording || p.Lost != 0 {
		t.Errorf("the first piece is %+v", p)
	}
	long := strings.Repeat("ü", 30<<10)
	say(long)
	var text strings.Builder
	for text.Len() < len(said(long)) {
		p := <-pieces
		must.True(t, !strings.ContainsRune(p.Text, 0xFFFD) && p.Base64 == nil,
			"a character is cut: a piece ends with %q", p.Text[max(0, len(p.Text)-8):])
		text.WriteString(p.Text)
	}
	expect.True(t, text.String() == string(said(long)), "%d bytes came, want %d", text.Len(), len(said(long)))
	if _, err := logs.Terminal("a", nil, nil); err != nil { // somebody who is slow to leave
		t.Fatal(err)
	}
	must.Do(t, logs.Remove("a"))
	expect.Is(t, <-ended, chat.ErrNotFound, "a follower of a removed log")
	if p, err := logs.Piece("a", -1); err != nil || p.End != 0 {
		t.Errorf("the log of the next chat of that id: %+v, %v", p, err)
	}
}

// TestFollowEnds: with the caller, with the error of out, and at a cursor that is none.
func TestFollowEnds(t *testing.T) {
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	ctx, leave := context.WithCancel(t.Context())
	away := errors.New("away")
	if err := logs.Follow(ctx, "a", -1, func(chat.Log) error { return away }); err != away {
		t.Errorf("an error of out: %v", err)
	}
	leave()
	err := logs.Follow(ctx, "a", -1, func(chat.Log) error { return nil })
	expect.True(t, errors.Is(err, context.Canceled), "a caller that is gone: %v", err)
	expect.Is(t, expect.Err(logs.Piece("a", 1)), chat.ErrInvalid, "a cursor after the end")
	expect.True(t, len(logs.books) == 0, "logs that nobody uses: %v", logs.books)
}

// TestRemoveWhatIsNoLog: what stands in the place of a log goes, too, or the chat could not.
func TestRemoveWhatIsNoLog(t *testing.T) {
	logs := NewLogs(t.TempDir(), slog.New(slog.DiscardHandler))
	path := filepath.Join(logs.dir, "a")
	must.Do(t, os.WriteFile(path, nil, 0o600))
	expect.NoError(t, logs.Remove("a"))
	expect.Is(t, expect.Err(os.Lstat(path)), os.ErrNotExist, "it is still there")
}
