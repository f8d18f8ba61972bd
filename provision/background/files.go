package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
)

// The files of a run that chatd writes.
const (
	runFile    = "run.json"
	resultFile = "result.json"
)

// savedRun is the data by which a later chatd finds a run again.
type savedRun struct {
	About
	NSEnter    int         `json:"nsenter"`
	Supervisor sys.Process `json:"minder"`
}

// makeFiles makes the run's directory, and the streams of its command.
func (r *Run) makeFiles(spec chat.RunSpec) (*session.Stdio, error) {
	err := errors.Join(safefs.MakeRoot(filepath.Dir(r.dir), 0o700), safefs.MakeRoot(r.dir, 0o700))
	if err != nil {
		return nil, err
	}
	room, err := os.Open(r.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", r.dir, err)
	}
	defer room.Close()
	if !stream.HasSpace(room, r.parts()) {
		return nil, fmt.Errorf("cannot run in the background: "+
			"less than 1/%d of the file system of %s is free: %w", r.parts(), r.dir, chat.ErrBusy)
	}
	for _, name := range []string{"stdout", "stderr", "end"} {
		if err := safefs.WriteNew(filepath.Join(r.dir, name), nil, 0o600); err != nil {
			return nil, err
		}
	}
	if err := sys.MakeFIFO(filepath.Join(r.dir, "orders"), 0); err != nil {
		return nil, err
	}
	stdio, err := session.NewStdio(r.UID, []byte(spec.Stdin), false)
	if err != nil {
		return nil, err
	}
	if r.Info.Schedule != "" {
		err = stdio.Join()
	}
	if err == nil && spec.StdinStaysOpen() {
		err = r.stdinFromFIFO(stdio)
	}
	if err != nil {
		stdio.Close()
		return nil, err
	}
	return stdio, nil
}

// parts says how much of the run directory's file system must be free for a run to begin. The
// space that supervisors leave free is for schedules, whose callers cannot try again.
func (r *Run) parts() uint64 {
	if r.Info.Schedule != "" {
		return 16
	}
	return 4
}

// stdinFromFIFO makes a fifo the standard input, so that a later chatd can write to it too. Its
// owner is the chat's uid, as of the pipes; no chat can enter the directory in which it lies.
func (r *Run) stdinFromFIFO(stdio *session.Stdio) error {
	name := r.fifo()
	if err := sys.MakeFIFO(name, r.UID); err != nil {
		return err
	}
	stdio.Stdin.Close()
	const flags = unix.O_NONBLOCK | unix.O_NOFOLLOW
	var err error
	stdio.Stdin, err = os.OpenFile(name, os.O_RDONLY|flags, 0)
	if err == nil { // the command expects blocking reads
		err = unix.SetNonblock(int(stdio.Stdin.Fd()), false)
	}
	if err == nil {
		stdio.StdinW, err = os.OpenFile(name, os.O_WRONLY|flags, 0)
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", name, err)
	}
	return nil
}

// save writes one of the run's JSON files in one step.
func (r *Run) save(name string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = safefs.ReplaceFile(filepath.Join(r.dir, name), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot record run %s: %w", r.Info.ID, err)
	}
	return nil
}

func load(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("cannot read the record of a run: %w", err)
	}
	return nil
}

// order sends the supervisor an order. The write does not block: the supervisor reads immediately,
// and the fifo has room for far more than all orders.
func (r *Run) order(what byte) error {
	name := filepath.Join(r.dir, "orders")
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return r.notRunning("reach")
	}
	if err == nil {
		_, err = f.Write([]byte{what})
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot reach the supervisor of run %s: %w", r.Info.ID, err)
	}
	return nil
}

// Drop forgets a background run and removes its files.
func (a *Runs) Drop(r *Run) error {
	a.Forget(r)
	if err := safefs.Remove(filepath.Dir(r.dir), r.Info.ID); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Surplus returns the oldest background runs of a chat that have ended, as far as they hold more
// than [chat.MaxRetainedOutput], or are more than [chat.MaxRuns]. The caller drops them.
func (a *Runs) Surplus(id chat.ID) (surplus []*Run) {
	kept, n := int64(0), 0
	for _, r := range slices.Backward(a.Of(id)) {
		if !r.Info.Background || !r.IsOver() {
			continue
		}
		kept += int64(r.kept())
		if n++; n > 1 && (kept > chat.MaxRetainedOutput || n > chat.MaxRuns) {
			surplus = append(surplus, r)
		}
	}
	return surplus
}

// Remove ends the runs of a chat whose session has no process left, and removes their files once
// their supervisors have ended.
func (a *Runs) Remove(ctx context.Context, id chat.ID) error {
	for _, r := range a.Of(id) {
		r.end()
		if !r.Info.Background {
			continue
		}
		if err := r.awaitOver(ctx); err != nil {
			return err
		}
		a.Forget(r)
	}
	if _, err := os.Lstat(a.opt.Dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return safefs.Remove(a.opt.Dir, string(id))
}
