package provision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/stream"
)

// OpenRun returns one run and, of a background run, its output in the files that its supervisor
// writes, open for reading and nothing else.
func (m *Manager) OpenRun(ctx context.Context, id chat.ID, run string) (stream.Opened, error) {
	_, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return stream.Opened{}, err
	}
	o := stream.Opened{Run: r.show(), Max: r.info.OutputMax}
	if !r.info.Background {
		return o, nil
	}
	if o.Stdout, err = r.openStream(chat.Stdout); err != nil {
		return stream.Opened{}, err
	}
	if o.Stderr, err = r.openStream(chat.Stderr); err != nil {
		o.Stdout.Close()
		return stream.Opened{}, err
	}
	return o, nil
}

// openStream opens a stream's file.
func (r *liveRun) openStream(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(r.dir, name))
	if os.IsNotExist(err) {
		return nil, chat.NoRun(r.chat, r.info.ID) // reaped, or its time is over
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what run %s printed: %w", r.info.ID, err)
	}
	return f, nil
}

// AwaitRun returns how a background run ended, once it has.
func (m *Manager) AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error) {
	_, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return chat.RunResult{}, err
	}
	if !r.info.Background {
		return chat.RunResult{}, fmt.Errorf("cannot wait for run %s: who started it does: %w",
			r.info.ID, chat.ErrWrongPhase)
	}
	select {
	case <-r.over:
		e, err := r.endAlone()
		return e.Result, err
	case <-ctx.Done():
		return chat.RunResult{}, fmt.Errorf("cannot wait for run %s: %w", r.info.ID, context.Cause(ctx))
	case <-m.runs.ctx.Done():
		return chat.RunResult{}, fmt.Errorf("cannot wait for run %s: chatd is ending: %w", r.info.ID, chat.ErrBusy)
	}
}

// endAlone is how a background run ended.
func (r *liveRun) endAlone() (endedRun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		return endedRun{}, chat.NoRun(r.chat, r.info.ID)
	}
	if r.ended.State == chat.RunLost {
		return endedRun{}, fmt.Errorf("cannot tell how run %s ended: what minded it was ended: %w", r.info.ID, chat.ErrWrongPhase)
	}
	return *r.ended, nil
}
