package terminal

import (
	"bytes"
	"context"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/tmux"
)

// waiter reads a terminal's output until the wait is over. It holds one piece at a time.
type waiter struct {
	ring    *ring
	cursor  int64
	entered int64 // the end of the typed input's echo
	ended   <-chan struct{}
	kept    <-chan struct{} // closed once ring has all output of an ended session
	until   string
	quiet   time.Duration
	command bool        // a shell at its prompt was given a command: its output has marks
	shows   func() bool // the screen matches the pattern

	text tmux.Text
	seen []byte // the text of the piece

	marks   tmux.Marks
	exit    tmux.Mark // the last end of a command
	shown   bool      // a command has ended, and its prompt has begun
	whole   bool      // and the prompt is complete
	again   bool      // a prompt was shown and no command was run: the line was dropped
	more    bool      // a prompt for the rest of a line was shown
	rest    bool      // the prompt that begins is for the rest of a line
	began   int64     // where the output of the command begins; 0 if it has not
	over    int64     // where it ends; 0 if it has not
	output  bool      // something was printed that is no echo
	printed time.Time // of the last output
	looked  time.Time // when the screen may be read again
	stale   bool      // the screen was read, and nothing was printed since
	matched bool      // the screen matched before what the log has now
}

// How long to wait for the end of a prompt that has begun: some shells have no mark for it. A
// prompt without a command before it, or for the rest of a line, may be followed by another.
const (
	promptRest  = 300 * time.Millisecond
	promptAgain = time.Second
)

// screenGap is the least time between two reads of the screen, which is also at least four times
// as long as a read took.
const screenGap = 200 * time.Millisecond

func (w *waiter) wait(ctx context.Context) (until string, err error) {
	buf := make([]byte, 32<<10)
	for w.printed = time.Now(); ; {
		_, _, changed := w.ring.bounds()
		n, at, err := w.ring.readAt(buf, w.cursor)
		if err != nil {
			return "", err
		}
		if n > 0 {
			if at != w.cursor {
				w.marks = tmux.Marks{}
			}
			w.printed, w.stale = time.Now(), false
			if until := w.read(buf[:n], at); until != "" {
				return until, nil
			}
			if ctx.Err() != nil {
				return chat.UntilMax, nil
			}
			continue
		}
		if until := w.pause(ctx, changed); until != "" {
			return until, nil
		}
	}
}

// read looks for marks and for output, and returns which wait is over. After a prompt the cursor
// stays behind it: later output is for the next wait.
func (w *waiter) read(p []byte, at int64) (until string) {
	w.cursor = at
	for len(p) > 0 {
		n := len(p)
		if end := bytes.IndexAny(p, "\a\\"); end >= 0 { // the next mark may end here
			n = end + 1
		}
		if echo := w.entered - w.cursor; echo > 0 {
			n = int(min(int64(n), echo))
		}
		counts := w.cursor >= w.entered && (!w.command || w.began > 0 && w.over == 0)
		if w.visible(p[:n]) && counts {
			w.output = true
		}
		for _, mark := range w.marks.Read(p[:n]) {
			w.mark(mark, w.cursor+int64(n))
		}
		w.cursor, p = w.cursor+int64(n), p[n:]
		if w.whole && w.until == chat.UntilPrompt {
			return chat.UntilPrompt
		}
	}
	if w.output && w.until == chat.UntilOutput {
		return chat.UntilOutput
	}
	return ""
}

// visible reports whether p has text, and not only line ends and movements.
func (w *waiter) visible(p []byte) bool {
	w.seen = w.text.Append(w.seen[:0], p)
	return len(bytes.TrimSpace(w.seen)) > 0
}

// mark handles one mark, whose end is the cursor end.
func (w *waiter) mark(mark tmux.Mark, end int64) {
	switch mark.Kind {
	case 'A':
		w.rest = mark.More
	case 'B':
		w.whole, w.more = w.shown, w.rest
		w.again = !w.shown && !w.rest
	case 'C':
		w.again, w.more, w.shown, w.whole = false, false, false, false
		if w.began == 0 {
			w.began = end
		}
	case 'D':
		w.exit, w.shown, w.more = mark, true, false
		if w.began > 0 {
			w.over, w.output = end, true
		}
	}
}

// due returns which wait ends if no more output comes, and how long after the last output; until
// is "" if none does.
func (w *waiter) due() (until string, after time.Duration) {
	switch {
	case w.until == chat.UntilPrompt && w.shown:
		return chat.UntilPrompt, promptRest
	case w.more:
		return chat.UntilMore, promptRest
	case w.until == chat.UntilPrompt && w.again:
		return chat.UntilPrompt, promptAgain
	case w.until == chat.UntilQuiet && w.output:
		return chat.UntilQuiet, w.quiet
	case w.until == chat.UntilScreen && w.output && !w.stale:
		return chat.UntilScreen, max(w.quiet, w.looked.Sub(w.printed))
	}
	return "", 0
}

// pause waits for more output; until is not "" if the wait is over before.
func (w *waiter) pause(ctx context.Context, changed <-chan struct{}) (until string) {
	why, after := w.due()
	var still <-chan time.Time
	if why != "" {
		timer := time.NewTimer(max(0, after-time.Since(w.printed)))
		defer timer.Stop()
		still = timer.C
	}
	select {
	case <-changed:
		return ""
	case <-still:
		if why == chat.UntilScreen {
			return w.look(changed)
		}
		return why
	case <-ctx.Done():
		return chat.UntilMax
	case <-w.ended:
		return w.end(ctx, changed)
	}
}

// look matches the screen against the pattern. A command that has ended will not change it. The
// screen may be ahead of the log: what comes next then is in the answer too.
func (w *waiter) look(changed <-chan struct{}) (until string) {
	began := time.Now()
	found := w.shows()
	w.looked, w.stale = time.Now().Add(max(screenGap, 4*time.Since(began))), true
	switch {
	case found && !w.matched:
		w.matched = true
		select {
		case <-changed:
			return ""
		case <-time.After(screenGap):
			return chat.UntilScreen
		}
	case found || w.matched:
		return chat.UntilScreen
	case w.whole:
		return chat.UntilPrompt
	}
	return ""
}

// end waits for the last output of the session.
func (w *waiter) end(ctx context.Context, changed <-chan struct{}) (until string) {
	select {
	case <-w.kept:
	case <-ctx.Done():
		return chat.UntilMax
	}
	select {
	case <-changed:
		return ""
	default:
		return chat.UntilEnded
	}
}
