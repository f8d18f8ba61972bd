package terminal

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/tmux"
)

// Between a text and its Enter a program needs time to read the text. An Enter in the same read,
// or while the program handles a paste, counts as a line end (Claude Code, gemini-cli).
const (
	shownPause  = 500 * time.Millisecond  // without output, once the text was printed
	otherPause  = time.Second             // without output, where something else was printed
	silentPause = 2200 * time.Millisecond // where nothing was printed
	busyTimeout = time.Second             // where the text was printed and output goes on
	echoTimeout = 5 * time.Second         // where output goes on without the text
)

// pauseAfter returns when Enter may be pressed after a text that was typed when the log ended
// at before.
func (l *Recording) pauseAfter(ctx context.Context, r *ring, before int64, text string) error {
	e := newEcho(before, text)
	for began := time.Now(); ; {
		_, _, changed := r.bounds()
		known := e.read(r) && l.Active()
		due := e.due(began)
		if !known {
			due = began.Add(shownPause)
		}
		if !time.Now().Before(due) {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return fmt.Errorf("the text was typed, but not Enter: %w", context.Cause(ctx))
		}
	}
}

// echo looks for the end of a typed text in the terminal's output since.
type echo struct {
	word    []byte // the end of the text; empty if it has no word
	cursor  int64
	printed time.Time // of the last output; zero if there was none
	shown   bool
	since   time.Time // when it was shown

	text tmux.Text
	seen []byte // the end of the text that was printed
}

// echoWord bounds the word that is looked for, in bytes: a longer one may be wrapped.
const echoWord = 16

func newEcho(cursor int64, text string) *echo {
	e := &echo{cursor: cursor}
	if words := strings.Fields(text); len(words) > 0 {
		last := []byte(words[len(words)-1])
		e.word = last[max(0, len(last)-echoWord):]
	}
	return e
}

// read reads the output since the last call, and reports whether it could.
func (e *echo) read(r *ring) bool {
	buf := make([]byte, 4<<10)
	for {
		n, from, err := r.readAt(buf, e.cursor)
		if err != nil || n == 0 {
			return err == nil
		}
		e.cursor, e.printed = from+int64(n), time.Now()
		e.seen = e.text.Append(e.seen, buf[:n])
		if !e.shown && bytes.Contains(e.seen, e.word) {
			e.shown, e.since = true, e.printed
		}
		e.seen = append(e.seen[:0], e.seen[max(0, len(e.seen)-echoWord):]...)
	}
}

// due is when Enter may be pressed if nothing more is printed.
func (e *echo) due(began time.Time) time.Time {
	due, end := began.Add(silentPause), began.Add(echoTimeout)
	switch {
	case e.shown:
		due, end = e.printed.Add(shownPause), e.since.Add(busyTimeout)
	case !e.printed.IsZero():
		due = e.printed.Add(otherPause)
	}
	if due.After(end) {
		return end
	}
	return due
}
