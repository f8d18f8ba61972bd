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
	"github.com/chatd/chatd/tmux"
)

// InputWait is Input that waits, as in.Wait says, and returns what was printed meanwhile. One
// caller at a time waits in a chat: another's text is typed when the first has its answer, or
// refused as busy when its own time is over before. Input goes in between: it may be C-c.
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

// errWaited is the end of a wait, and no error.
var errWaited = errors.New("its time is over")

func (m *Manager) typeAndWait(ctx, within context.Context, rec state.Record, s *session, r *ring.Ring, in chat.Input) (chat.Typed, error) {
	if in.Wait.Until == chat.UntilPrompt {
		s.log.awaitPrompt(within, r)
	}
	_, from, _ := r.Bounds()
	if _, err := m.typeInto(ctx, rec, s, r, in, func() {}); err != nil {
		return chat.Typed{}, err
	}
	w := outputWait{ring: r, cursor: from, ended: s.leader.ended(), kept: s.log.over, prompt: in.Wait.Until == chat.UntilPrompt, quiet: in.Wait.Quiet.D()}
	if w.quiet == 0 {
		w.quiet = chat.DefaultQuiet.D()
	}
	until, err := w.wait(within)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("cannot wait for the terminal of chat %s: the caller went away: %w", rec.ID, context.Cause(ctx))
	}
	if err != nil {
		return chat.Typed{}, err
	}
	t := chat.Typed{Until: until}
	if until == chat.UntilPrompt && w.exit.HasExit {
		t.Exit = &w.exit.Exit
	}
	t.Log, err = m.typedLog(rec.ID, r, from, w.cursor)
	return t, err
}

// promptPast is how long a prompt is waited for that is on its way: what was printed before
// the input must not be taken for what comes after it.
const promptPast = 500 * time.Millisecond

// awaitPrompt returns when the shell is at a prompt, as its marks say, or soon.
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

// enters reports an input that a shell may answer with a prompt.
func enters(in chat.Input) bool {
	return in.Enter || strings.ContainsAny(in.Text, "\r\n") || slices.ContainsFunc(in.Keys, func(k string) bool {
		key, _ := tmux.KeyName(k)
		return strings.HasSuffix(key, "Enter") || strings.Contains(key, "C-")
	})
}

// typedLog is what lies between two cursors, the end of it where it is too long.
func (m *Manager) typedLog(id chat.ID, r *ring.Ring, from, to int64) (chat.Log, error) {
	at := max(from, to-chat.MaxTyped)
	buf := make([]byte, to-at)
	n, got, err := r.ReadAt(buf, at)
	if err != nil {
		return chat.Log{}, err
	}
	piece := buf[:max(0, min(int64(n), to-got))]
	if got > from {
		whole := wholeStart(piece)
		got, piece = got+int64(len(piece)-len(whole)), whole
	}
	_, end, _ := r.Bounds()
	l := chat.Log{From: got, Cursor: to, End: max(end, to), Lost: got - from, Recording: m.recording(id)}
	l.SetBytes(piece)
	return l, nil
}

// outputWait reads what is printed until it is time to answer. It holds one piece at a time.
type outputWait struct {
	ring   *ring.Ring
	cursor int64
	ended  <-chan struct{}
	kept   <-chan struct{} // closed when what was printed before the end is in ring
	prompt bool
	quiet  time.Duration

	marks tmux.Marks
	exit  tmux.Mark // the last end of a command
	shown bool      // a command has ended, and its prompt has begun
}

// promptRest is how long is waited for the end of a prompt that has begun: a shell without
// the mark for it has one too.
const promptRest = 300 * time.Millisecond

func (w *outputWait) wait(ctx context.Context) (until string, err error) {
	buf := make([]byte, 32<<10)
	for printed := time.Now(); ; {
		_, _, changed := w.ring.Bounds()
		n, at, err := w.ring.ReadAt(buf, w.cursor)
		if err != nil {
			return "", err
		}
		if n > 0 {
			if at != w.cursor {
				w.marks = tmux.Marks{}
			}
			printed = time.Now()
			if done := w.read(buf[:n], at); done {
				return chat.UntilPrompt, nil
			}
			if ctx.Err() != nil {
				return chat.UntilMax, nil
			}
			continue
		}
		if until := w.pause(ctx, changed, printed); until != "" {
			return until, nil
		}
	}
}

// read looks for the end of a prompt. The cursor stays behind it: what comes later is for the
// next one to read.
func (w *outputWait) read(p []byte, at int64) (done bool) {
	for len(p) > 0 && !done {
		n := 1 + indexEnd(p)
		for _, mark := range w.marks.Read(p[:n]) {
			switch mark.Kind {
			case 'D':
				w.exit, w.shown = mark, true
			case 'B':
				done = w.prompt && w.shown
			}
		}
		at, p = at+int64(n), p[n:]
	}
	w.cursor = at
	return done
}

// indexEnd is where the next mark may end, or the last byte.
func indexEnd(p []byte) int {
	for i, b := range p {
		if b == '\a' || b == '\\' {
			return i
		}
	}
	return len(p) - 1
}

// pause waits for more to be printed, and says if it is over before.
func (w *outputWait) pause(ctx context.Context, changed <-chan struct{}, printed time.Time) (until string) {
	why, patience := chat.UntilQuiet, w.quiet
	if w.prompt {
		why, patience = chat.UntilPrompt, promptRest
	}
	timer := time.NewTimer(max(0, patience-time.Since(printed)))
	defer timer.Stop()
	quiet := timer.C
	if w.prompt && !w.shown {
		quiet = nil
	}
	select {
	case <-changed:
		return ""
	case <-quiet:
		return why
	case <-ctx.Done():
		return chat.UntilMax
	case <-w.ended:
		select {
		case <-w.kept:
		case <-ctx.Done():
			return chat.UntilMax
		}
		select {
		case <-changed: // what it printed last
			return ""
		default:
			return chat.UntilEnded
		}
	}
}
