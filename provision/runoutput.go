package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
)

// ReadRun returns what a run of the background printed from the cursor on, at most
// [chat.MaxReadRun] of each stream.
func (m *Manager) ReadRun(ctx context.Context, id chat.ID, run, cursor string) (chat.RunOutput, error) {
	at, err := chat.ParseRunCursor(cursor)
	if err != nil {
		return chat.RunOutput{}, err
	}
	_, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return chat.RunOutput{}, err
	}
	return r.read(at, make([]byte, chat.MaxReadRun))
}

// followEvery is how often a run that is followed is looked at.
const followEvery = 30 * time.Millisecond

// FollowRun gives everything that a run of the background prints from the cursor on to out, and
// returns how it ended. It may be followed by many, and whoever goes away ends nothing. Frame.Missing counts the
// bytes before a frame that are not kept any more.
func (m *Manager) FollowRun(ctx context.Context, id chat.ID, run, cursor string, out func(chat.Frame)) (chat.RunResult, error) {
	at, err := chat.ParseRunCursor(cursor)
	if err != nil {
		return chat.RunResult{}, err
	}
	_, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return chat.RunResult{}, err
	}
	buf := make([]byte, chat.MaxReadRun)
	for {
		over := r.isOver()
		got, err := r.read(at, buf)
		if err != nil {
			return chat.RunResult{}, err
		}
		for _, f := range got.Frames {
			out(f)
		}
		if at, err = chat.ParseRunCursor(got.Cursor); err != nil {
			return chat.RunResult{}, err
		}
		if len(got.Frames) > 0 {
			continue
		}
		if over {
			return r.resultAlone()
		}
		select {
		case <-r.over:
		case <-time.After(followEvery):
		case <-ctx.Done():
			return chat.RunResult{}, fmt.Errorf("cannot follow run %s: %w", r.info.ID, context.Cause(ctx))
		case <-m.runs.ctx.Done():
			return chat.RunResult{}, fmt.Errorf("cannot follow run %s: chatd is ending: %w", r.info.ID, chat.ErrBusy)
		}
	}
}

// resultAlone is the result without its output.
func (r *liveRun) resultAlone() (chat.RunResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		return chat.RunResult{}, chat.NoRun(r.chat, r.info.ID)
	}
	if r.ended.State == chat.RunLost {
		return chat.RunResult{}, fmt.Errorf("cannot tell how run %s ended: what minded it was ended: %w", r.info.ID, chat.ErrWrongPhase)
	}
	return r.ended.Result, nil
}

// read reads both streams once, as much of each as buf has room for.
func (r *liveRun) read(at chat.RunCursor, buf []byte) (out chat.RunOutput, err error) {
	if !r.info.Background {
		return out, fmt.Errorf("cannot read run %s: its output goes to who started it: %w", r.info.ID, chat.ErrWrongPhase)
	}
	out.Frames, out.State = []chat.Frame{}, chat.RunRunning
	r.mu.Lock()
	if r.ended != nil {
		out.State = r.ended.State
	}
	r.mu.Unlock()
	for _, s := range []struct {
		name string
		at   *int64
	}{{chat.Stdout, &at.Stdout}, {chat.Stderr, &at.Stderr}} {
		ring, done, err := r.openStream(s.name)
		if err != nil {
			return out, err
		}
		n, from, err := ring.ReadAt(buf, *s.at)
		done()
		if err != nil {
			return out, err
		}
		missing := max(0, from-*s.at)
		out.Missing += missing
		*s.at = from + int64(n)
		if n > 0 {
			f := chat.NewFrame(s.name, time.Now().UTC(), buf[:n])
			f.Cursor, f.Missing = at.String(), missing
			out.Frames = append(out.Frames, f)
		}
	}
	out.Cursor = at.String()
	return out, nil
}
