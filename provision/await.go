package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/ring"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/stream"
	"github.com/chatd/chatd/tmux"
)

// InputWait is Input that waits for in.Wait and returns the output since. Where Plain is not set,
// package terminal renders it from the span Output. One caller at a time waits in a chat. The
// next one's text is typed after the first has its answer, or is refused as busy when its own
// time ends before. Input does not wait: it may be C-c.
func (m *Manager) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	if in.Wait == nil {
		return chat.Typed{}, fmt.Errorf("cannot wait: no wait is given: %w", chat.ErrInvalid)
	}
	rec, s, err := m.readyToType(ctx, id, in)
	if err != nil {
		return chat.Typed{}, err
	}
	limit := in.Wait.Max
	if limit == 0 {
		limit = chat.DefaultWait
	}
	within, cancel := context.WithTimeoutCause(ctx, limit.D(), errWaited)
	defer cancel()
	unlock, err := m.typing.lock(within, id)
	if err != nil {
		return chat.Typed{}, err
	}
	defer unlock()
	r, done, err := m.openLog(rec.ID)
	if err != nil {
		return chat.Typed{}, err
	}
	defer done()
	if !s.log.recording() {
		return chat.Typed{}, fmt.Errorf("cannot wait for the terminal of chat %s: nothing keeps what it prints; put the chat to sleep and wake it: %w", id, chat.ErrWrongPhase)
	}
	return m.typeAndWait(ctx, within, rec, s, r, in)
}

// errWaited is the cause with which a wait's context ends; it is no failure.
var errWaited = errors.New("its time is over")

func (m *Manager) typeAndWait(ctx, within context.Context, rec state.Record, s *session, r *ring.Ring, in chat.Input) (chat.Typed, error) {
	if in.Wait.Until == chat.UntilPrompt {
		s.log.awaitPrompt(within, r)
	}
	pattern, err := in.Wait.Regexp()
	if err != nil {
		return chat.Typed{}, err
	}
	_, from, _ := r.Bounds()
	w := outputWait{ring: r, cursor: from, ended: s.init.Ended(), kept: s.log.over, until: in.Wait.Until, quiet: in.Wait.Quiet.D()}
	if w.quiet == 0 && w.until == chat.UntilQuiet {
		w.quiet = chat.DefaultQuiet.D()
	}
	front, err := m.typeInto(ctx, rec, s, r, in, func(command bool) {
		w.command = command
		_, w.entered, _ = r.Bounds()
	})
	if err != nil {
		return chat.Typed{}, err
	}
	w.shows = func() bool {
		sc, err := s.terminal.Screen(within, false, 0)
		return err == nil && pattern.MatchString(sc.Text[max(0, len(sc.Text)-maxMatched):])
	}
	until, err := w.wait(within)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("cannot wait for the terminal of chat %s: the caller went away: %w", rec.ID, context.Cause(ctx))
	}
	if err != nil {
		return chat.Typed{}, err
	}
	t := chat.Typed{Until: until, Program: strings.ToValidUTF8(front.Program, "\uFFFD")}
	if until == chat.UntilPrompt && w.exit.HasExit {
		t.Exit = &w.exit.Exit
	}
	if t.Log, err = m.typedLog(rec.ID, r, from, w.cursor); err != nil {
		return chat.Typed{}, err
	}
	setPlain(ctx, s, &w, front, &t)
	return t, nil
}

// maxMatched bounds the end of a screen that is matched against a pattern, in bytes.
const maxMatched = 16 << 10

// setPlain sets t.Output to the command's output in the log if its bounds are known. Otherwise
// it sets t.Plain to the screen and the lines that were scrolled away since.
func setPlain(ctx context.Context, s *session, w *outputWait, front tmux.Front, t *chat.Typed) {
	if w.command && w.began > 0 {
		t.Output = &chat.Span{From: w.began, To: w.cursor}
		if w.over > 0 {
			t.Output.To = w.over
		}
		return
	}
	now, err := s.terminal.Screen(ctx, false, 0)
	if err == nil && now.HistorySize > front.History {
		now, err = s.terminal.Screen(ctx, false, min(chat.MaxHistory, now.HistorySize-front.History))
	}
	if err != nil { // the session has ended
		t.Output = &chat.Span{From: t.From, To: t.Cursor}
		return
	}
	t.Plain = strings.ToValidUTF8(now.Text[max(0, len(now.Text)-maxPlain):], "\uFFFD")
}

// maxPlain bounds the text of an answer that is read from the screen; see [chat.Typed].
const maxPlain = 256 << 10

// promptPast bounds the wait for a prompt before the input is typed: output from before the
// input must not count as output after it.
const promptPast = 500 * time.Millisecond

// awaitPrompt returns when the shell's marks show a prompt, or after promptPast.
func (l *sessionLog) awaitPrompt(ctx context.Context, r *ring.Ring) {
	if l == nil {
		return
	}
	for late := time.After(promptPast); ; {
		_, _, changed := r.Bounds()
		if l.atPrompt.Load() {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// enters reports whether a shell may answer the input with a prompt.
func enters(in chat.Input) bool {
	return in.Enter || strings.ContainsAny(in.Text, "\r\n") || slices.ContainsFunc(in.Keys, func(k string) bool {
		key, _ := tmux.KeyName(k)
		return strings.HasSuffix(key, "Enter") || strings.Contains(key, "C-")
	})
}

// typedLog returns the log between two cursors, at most its last chat.MaxTyped bytes.
func (m *Manager) typedLog(id chat.ID, r *ring.Ring, from, to int64) (chat.Log, error) {
	at := max(from, to-chat.MaxTyped)
	buf := make([]byte, to-at)
	n, got, err := r.ReadAt(buf, at)
	if err != nil {
		return chat.Log{}, err
	}
	piece := buf[:max(0, min(int64(n), to-got))]
	if got > from {
		whole := stream.WholeStart(piece)
		got, piece = got+int64(len(piece)-len(whole)), whole
	}
	_, end, _ := r.Bounds()
	l := chat.Log{From: got, Cursor: to, End: max(end, to), Lost: got - from, Recording: m.recording(id)}
	l.SetBytes(piece)
	return l, nil
}
