package terminal

import (
	"context"
	"time"

	"github.com/chatd/chatd/tmux"
)

// The shell's last state by its marks, which the chat can forge.
const (
	markNone    int32 = iota // unknown
	markPrompt               // it is at a prompt
	markMore                 // it wants the rest of a line
	markCommand              // a command runs
	markBetween              // a command has ended, and the prompt is not there yet
)

// look updates the state from the marks.
func (l *Recording) look(marks []tmux.Mark) {
	for _, mark := range marks {
		now := markBetween
		switch {
		case mark.Kind == 'A':
			l.more = mark.More
		case mark.Kind == 'B' && l.more:
			now = markMore
		case mark.Kind == 'B':
			now = markPrompt
		case mark.Kind == 'C':
			now = markCommand
		}
		l.last.Store(now)
		l.atPrompt.Store(now == markPrompt)
	}
}

// recalled is how much of a session's output chatd reads again after a restart, to find the
// shell's last mark.
const recalled = 64 << 10

// Recall restores the state from the marks before a restart. It does not know of a line that was
// entered meanwhile: a wait for a prompt does not wait for that line's.
func (l *Recording) Recall() error {
	r := l.book.ring
	_, end, _ := r.bounds()
	buf := make([]byte, recalled)
	n, _, err := r.readAt(buf, max(0, end-recalled))
	if err != nil {
		return err
	}
	l.look((&tmux.Marks{}).Read(buf[:n]))
	l.atPrompt.Store(true)
	return nil
}

// lastMark is the shell's last state.
func (l *Recording) lastMark() int32 {
	if l == nil {
		return markNone
	}
	return l.last.Load()
}

// runs reports whether the marks say for a while that a command runs.
func (l *Recording) runs(ctx context.Context, while time.Duration) bool {
	for late := time.After(while); l.lastMark() == markCommand; {
		select {
		case <-late:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// promptPast bounds the wait for a prompt before the input is typed: output from before the
// input must not count as output after it.
const promptPast = 500 * time.Millisecond

// firstPrompt is the same, once for each session, for the prompt with which a session begins: what
// the terminal shows comes to chatd later than the shell's word that it is ready.
const firstPrompt = 10 * time.Second

// awaitPrompt returns when the shell's marks show a prompt, or after promptPast, the first time after
// firstPrompt.
func (l *Recording) awaitPrompt(ctx context.Context, r *ring) {
	if l == nil {
		return
	}
	past := promptPast
	if l.lastMark() == markNone && !l.begun.Swap(true) {
		past = firstPrompt
	}
	for late := time.After(past); ; {
		_, _, changed := r.bounds()
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
