package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/supervise"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

// A background run has a directory of root's below the run directory, so that a
// reboot takes it away: run.json (noteFile), result.json once it has ended, the streams stdout and
// stderr and the end, which its supervisor writes, and the fifos orders and stdin.
const (
	noteFile   = "run.json"
	resultFile = "result.json"
)

// runNote is what a later chatd needs to find a run again.
type runNote struct {
	Run chat.Run `json:"run"`
	// Taken is the time of the schedule that the run is for.
	Taken      time.Time     `json:"taken,omitzero"`
	Grace      time.Duration `json:"grace"`
	NSEnter    int           `json:"nsenter"`
	Supervisor sys.Process   `json:"minder"`
	// Refused is how many forks the chat had been refused when the run began.
	Refused uint64 `json:"refused,omitempty"`
}

// endedRun is how a background run ended; its output stays in its files.
type endedRun struct {
	State  chat.RunState  `json:"state"`
	At     time.Time      `json:"at"`
	Result chat.RunResult `json:"result"`
	// Tail is the end of its standard output, which the result of a schedule shows.
	Tail []byte `json:"tail,omitempty"`
}

// makeFiles makes the run's directory, and the streams of its command.
func (r *liveRun) makeFiles(uid uint32, spec chat.RunSpec) (*runStdio, error) {
	if err := errors.Join(trees.MakeRoot(filepath.Dir(r.dir), 0o700), trees.MakeRoot(r.dir, 0o700)); err != nil {
		return nil, err
	}
	room, err := os.Open(r.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", r.dir, err)
	}
	defer room.Close()
	if !supervise.Roomy(room, r.parts()) {
		return nil, fmt.Errorf("cannot run in the background: less than 1/%d of the file system of %s is free: %w", r.parts(), r.dir, chat.ErrBusy)
	}
	for _, name := range []string{"stdout", "stderr", "end"} {
		if err := trees.WriteNew(filepath.Join(r.dir, name), nil, 0o600); err != nil {
			return nil, err
		}
	}
	if err := sys.MakeFIFO(filepath.Join(r.dir, "orders"), 0); err != nil {
		return nil, err
	}
	stdio, err := newRunStdio(uid, []byte(spec.Stdin), false)
	if err != nil {
		return nil, err
	}
	if r.info.Schedule != "" {
		err = stdio.join()
	}
	if err == nil && spec.StdinStaysOpen() {
		err = stdio.fromFIFO(filepath.Join(r.dir, "stdin"), uid)
	}
	if err != nil {
		stdio.close()
		return nil, err
	}
	return stdio, nil
}

// parts says how much of the run directory's file system must be free for a run to begin. What
// minders leave free for others is there for schedules, whose callers cannot try again.
func (r *liveRun) parts() uint64 {
	if r.info.Schedule != "" {
		return 16
	}
	return 4
}

// fromFIFO makes a fifo standard input, so that a later chatd can write to it too. It is
// the chat's, as the pipes are; no chat can pass through the directory that it lies in.
func (r *runStdio) fromFIFO(name string, uid uint32) error {
	if err := sys.MakeFIFO(name, uid); err != nil {
		return err
	}
	in, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", name, err)
	}
	r.stdin.Close()
	r.stdin = in
	// The command expects to wait for what it reads.
	if err := unix.SetNonblock(int(in.Fd()), false); err != nil {
		return fmt.Errorf("cannot open %s: %w", name, err)
	}
	if r.stdinW, err = os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0); err != nil {
		return fmt.Errorf("cannot open %s: %w", name, err)
	}
	return nil
}

// note writes one of the run's JSON files in one step.
func (r *liveRun) note(name string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = trees.ReplaceFile(filepath.Join(r.dir, name), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot note run %s: %w", r.info.ID, err)
	}
	return nil
}

func readNote(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("cannot read the note of a run: %w", err)
	}
	return nil
}

// order sends the supervisor an order. The supervisor reads immediately, and the fifo holds far
// more than all orders.
func (r *liveRun) order(what byte) error {
	f, err := os.OpenFile(filepath.Join(r.dir, "orders"), os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return r.notRunning("reach")
	}
	if err != nil {
		return fmt.Errorf("cannot reach what minds run %s: %w", r.info.ID, err)
	}
	_, err = f.Write([]byte{what})
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot reach what minds run %s: %w", r.info.ID, err)
	}
	return nil
}

// show is the run as it is now.
func (r *liveRun) show() chat.Run {
	info := r.info
	info.OutputMax = r.outputMax()
	r.mu.Lock()
	defer r.mu.Unlock()
	if info.Background && r.ended != nil {
		at, res := r.ended.At, r.ended.Result
		info.Result, info.State, info.EndedAt = &res, r.ended.State, &at
	}
	return info
}
