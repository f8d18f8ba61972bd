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
)

// A run of the background has a directory of root's below the run directory, so that a
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
	Supervisor process       `json:"minder"`
	// Refused is how many forks the chat had been refused when the run began.
	Refused uint64 `json:"refused,omitempty"`
}

// endedRun is how a run of the background ended; its output stays in its files.
type endedRun struct {
	State  chat.RunState  `json:"state"`
	At     time.Time      `json:"at"`
	Result chat.RunResult `json:"result"`
}

// makeFiles makes the run's directory, and the streams of its command.
func (r *liveRun) makeFiles(uid uint32, spec chat.RunSpec) (*runStdio, error) {
	if err := errors.Join(makeRootDir(filepath.Dir(r.dir), 0o700), makeRootDir(r.dir, 0o700)); err != nil {
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
		if err := writeNew(filepath.Join(r.dir, name), nil, 0o600); err != nil {
			return nil, err
		}
	}
	if err := makeFIFO(filepath.Join(r.dir, "orders"), 0); err != nil {
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
	if err := makeFIFO(name, uid); err != nil {
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
		err = replaceFile(filepath.Join(r.dir, name), b, 0o600)
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

// openStream opens a stream's file.
func (r *liveRun) openStream(name string) (*supervise.Ring, func(), error) {
	f, err := os.Open(filepath.Join(r.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, chat.NoRun(r.chat, r.info.ID) // reaped, or its time is over
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read what run %s printed: %w", r.info.ID, err)
	}
	return supervise.NewRing(f, r.info.OutputMax), func() { f.Close() }, nil
}

// show is the run as it is now, with its output if that is asked for.
func (r *liveRun) show(output bool) (chat.Run, error) {
	info := r.info
	info.OutputMax = r.outputMax()
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	if !info.Background {
		return info, nil
	}
	var res chat.RunResult
	if ended != nil {
		at := ended.At
		res, info.State, info.EndedAt = ended.Result, ended.State, &at
	}
	if output {
		if err := r.addOutput(&res); err != nil {
			return info, err
		}
	}
	if output || ended != nil {
		info.Result = &res
	}
	return info, nil
}

// addOutput puts head and tail of both streams into a result.
func (r *liveRun) addOutput(res *chat.RunResult) error {
	for _, s := range []struct {
		name  string
		text  *string
		total *int64
	}{{chat.Stdout, &res.Stdout, &res.StdoutBytes}, {chat.Stderr, &res.Stderr, &res.StderrBytes}} {
		ring, done, err := r.openStream(s.name)
		if err != nil {
			return err
		}
		c := newCapture(r.outputMax())
		missed, err := c.read(ring)
		done()
		if err != nil {
			return err
		}
		*s.text, *s.total = c.text(), c.total+missed
		res.Truncated = res.Truncated || c.truncated() || missed > 0
	}
	return nil
}

// read takes what is kept of a stream; missed is what found no room.
func (c *capture) read(ring *supervise.Ring) (missed int64, err error) {
	total, missed, err := ring.Counts()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 32<<10)
	for pos := int64(0); pos < total; {
		n, at, err := ring.ReadAt(buf[:min(int64(len(buf)), total-pos)], pos)
		if err != nil || n == 0 {
			return missed, err
		}
		if at > pos {
			c.skip(at)
		}
		c.add(buf[:n])
		pos = at + int64(n)
	}
	return missed, nil
}

// skip goes on at position pos of the stream, which lies in its tail.
func (c *capture) skip(pos int64) {
	c.tail, c.next, c.total = nil, 0, pos
}
