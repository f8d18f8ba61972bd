package terminal

import (
	"context"
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/tmux"
)

// await has do type, and waits for what the terminal prints, no longer than within.
func (t *Terminal) await(
	ctx, within context.Context, in chat.Input, ended <-chan struct{},
	do func(entering func(command bool)) (tmux.Front, error),
) (chat.Typed, error) {
	if in.Wait.Until == chat.UntilPrompt {
		t.log.awaitPrompt(within, t.ring)
	}
	pattern, err := in.Wait.Regexp()
	if err != nil {
		return chat.Typed{}, err
	}
	_, from, _ := t.ring.bounds()
	w := waiter{
		ring: t.ring, cursor: from, ended: ended, kept: t.log.over,
		until: in.Wait.Until, quiet: in.Wait.Quiet.D(),
	}
	if w.quiet == 0 && w.until == chat.UntilQuiet {
		w.quiet = chat.DefaultQuiet.D()
	}
	front, err := do(func(command bool) {
		w.command = command
		_, w.entered, _ = t.ring.bounds()
	})
	if err != nil {
		return chat.Typed{}, err
	}
	w.shows = func() bool {
		sc, err := t.tmux.Screen(within, tmux.Printed, 0)
		return err == nil && pattern.MatchString(sc.Text[max(0, len(sc.Text)-maxMatched):])
	}
	until, err := w.wait(within)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("cannot wait for the terminal of chat %s: the caller went away: %w",
			t.id, context.Cause(ctx))
	}
	if err != nil {
		return chat.Typed{}, err
	}
	return t.answer(ctx, &w, from, until, front)
}

// answer is what was printed from the cursor from on, until the wait was over.
func (t *Terminal) answer(
	ctx context.Context, w *waiter, from int64, until string, front tmux.Front,
) (chat.Typed, error) {
	out := chat.Typed{Until: until, Program: strings.ToValidUTF8(front.Program, "\uFFFD")}
	if until == chat.UntilPrompt && w.exit.HasExit {
		out.Exit = &w.exit.Exit
	}
	var err error
	if out.Log, err = typedLog(t.ring, from, w.cursor); err != nil {
		return chat.Typed{}, err
	}
	t.setPlain(ctx, w, front, &out)
	return out, nil
}

// maxMatched bounds the end of a screen that is matched against a pattern, in bytes.
const maxMatched = 16 << 10

// setPlain sets out.Output to the command's output in the log if its bounds are known. Otherwise
// it sets out.Plain to the screen and the lines that were scrolled away since.
func (t *Terminal) setPlain(ctx context.Context, w *waiter, front tmux.Front, out *chat.Typed) {
	size := chat.TTY{Rows: front.Rows, Cols: front.Cols}
	if w.command && w.began > 0 {
		out.Output = &chat.Span{From: w.began, To: w.cursor, TTY: size}
		if w.over > 0 {
			out.Output.To = w.over
		}
		return
	}
	now, err := t.tmux.Screen(ctx, tmux.Printed, 0)
	if err == nil && now.HistorySize > front.History {
		now, err = t.tmux.Screen(ctx, tmux.Printed, min(chat.MaxHistory, now.HistorySize-front.History))
	}
	if err != nil { // the session has ended
		out.Output = &chat.Span{From: out.From, To: out.Cursor, TTY: size}
		return
	}
	out.Plain = strings.ToValidUTF8(now.Text[max(0, len(now.Text)-maxPlain):], "\uFFFD")
}

// maxPlain bounds the text of an answer that is read from the screen; see [chat.Typed].
const maxPlain = 256 << 10

// typedLog returns the log between two cursors, at most its last chat.MaxTyped bytes.
func typedLog(r *ring, from, to int64) (chat.Log, error) {
	at := max(from, to-chat.MaxTyped)
	buf := make([]byte, to-at)
	n, got, err := r.readAt(buf, at)
	if err != nil {
		return chat.Log{}, err
	}
	piece := buf[:max(0, min(int64(n), to-got))]
	if got > from {
		whole := stream.WholeStart(piece)
		got, piece = got+int64(len(piece)-len(whole)), whole
	}
	_, end, _ := r.bounds()
	l := chat.Log{From: got, Cursor: to, End: max(end, to), Lost: got - from}
	l.SetBytes(piece)
	return l, nil
}
