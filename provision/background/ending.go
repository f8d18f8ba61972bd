package background

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/chatd/chatd/chat"
)

// Began records the pid of nsenter and, for a foreground run whose standard input stays
// open, the end to write to. The caller closes that file after the run.
func (r *Run) Began(nsenter int, stdin *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nsenter, r.stdin = nsenter, stdin
}

func (r *Run) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nsenter
}

// Within returns a context that ends with ctx, with cancel, or when the run is told to end.
func (r *Run) Within(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	forget := context.AfterFunc(r.ctx, end)
	return ctx, func() { forget(); end() }
}

// Over is closed when the run has ended, and nothing of it is left.
func (r *Run) Over() <-chan struct{} { return r.over.Done() }

// IsOver reports whether Over is closed.
func (r *Run) IsOver() bool { return r.over.Err() != nil }

// setEndReason records the reason for the run's end, unless it has one.
func (r *Run) setEndReason(by chat.EndedBy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == "" && !r.IsOver() {
		r.by = by
	}
}

// EndedBy is the reason for the run's end; empty means its command, its timeout or a limit.
func (r *Run) EndedBy() chat.EndedBy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by
}

// End ends the run as its timeout does: SIGTERM, its grace, then all of its leaf. It returns when
// nothing of the run is left, or with an error when ctx ends; the run ends all the same.
func (r *Run) End(ctx context.Context, by chat.EndedBy) error {
	r.setEndReason(by)
	r.end()
	return r.awaitOver(ctx)
}

func (r *Run) awaitOver(ctx context.Context) error {
	select {
	case <-r.Over():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the end of run %s: %w",
			chat.Quote(r.Info.ID), context.Cause(ctx))
	}
}

// finish marks the run as over, with its end.
func (r *Run) finish(e *End) {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.IsOver() {
		r.stdin, r.ended = nil, e
		r.markOver()
	}
}

// Denied adds a refusal of the chat to all of its runs under way.
func (a *Runs) Denied(id chat.ID, d chat.Denied) {
	for _, r := range a.Of(id) {
		r.mu.Lock()
		if !r.IsOver() && len(r.denied) < chat.MaxDenied && !slices.Contains(r.denied, d) {
			r.denied = append(r.denied, d)
		}
		r.mu.Unlock()
	}
}

// Refused is Denied for the refusals among the events of a chat's connections.
func (a *Runs) Refused(id chat.ID, events []chat.EgressEvent) {
	for _, e := range events {
		if e.Verdict == chat.EgressRefused {
			a.Denied(id, chat.Denied{Op: "connect", Host: cmp.Or(e.Host, e.Address), Port: e.Port})
		}
	}
}

// Denied returns the refusals of the chat while the run was under way.
func (r *Run) Denied() []chat.Denied {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.denied)
}

// SetEndReason records why the runs of a chat are about to end.
func (a *Runs) SetEndReason(id chat.ID, by chat.EndedBy) {
	for _, r := range a.Of(id) {
		r.setEndReason(by)
	}
}

// EndForeground ends all foreground runs, because chatd ends, and returns how many there were.
// Their callers get their results; background runs go on.
func (a *Runs) EndForeground() (ended int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, runs := range a.all {
		for _, r := range runs {
			if !r.Info.Background && !r.IsOver() {
				r.setEndReason(chat.EndedByStop)
				r.end()
				ended++
			}
		}
	}
	return ended
}
