package background

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/session"
)

// End is how a background run ended; its output stays in its files.
type End struct {
	State  chat.RunState  `json:"state"`
	At     time.Time      `json:"at"`
	Result chat.RunResult `json:"result"`
	// Tail is the end of its standard output, which the result of a schedule shows, at most
	// [plan.MaxTail] bytes.
	Tail []byte `json:"tail,omitempty"`
	// OOMKills is how many processes of the run the OOM killer ended.
	OOMKills uint64 `json:"-"`
}

// Watch waits for the end of a background run, and ends the run at its timeout or when it is told
// to end. No process of the run is left then. over is false when ctx ended first: the run goes on.
// The caller completes the end, also after an error, and passes it to [Run.Keep].
func (r *Run) Watch(ctx context.Context) (e End, over bool, err error) {
	timedOut := false
	if l := r.supervisor; l != nil {
		defer l.Close()
		if timedOut, over = r.awaitSupervisor(ctx, l); !over {
			return End{}, false, nil
		}
	}
	e, err = r.readEnd(ctx, timedOut)
	return e, true, err
}

func (r *Run) awaitSupervisor(ctx context.Context, l *sys.ProcessHandle) (timedOut, over bool) {
	ended := l.Ended()
	timer := time.NewTimer(r.timeLeft(l))
	defer timer.Stop()
	select {
	case <-ended:
	case <-ctx.Done():
		return false, false
	case <-r.ctx.Done():
	case <-timer.C:
		timedOut = true
	}
	if !l.Alive() {
		return timedOut, true
	}
	leaf := r.leaf()
	if err := errors.Join(leaf.Term(r.Grace, r.pid()), leaf.Kill(ctx)); err != nil {
		r.logError("cannot end a run", err)
	}
	select {
	case <-ended: // the supervisor reads the rest of the output, for a bounded time
	case <-ctx.Done():
		return false, false
	case <-time.After(session.StartTimeout):
		if err := l.Signal(unix.SIGKILL); err != nil {
			r.logError("cannot end the supervisor of a run", err)
		}
		<-ended
	}
	return timedOut, true
}

// timeLeft is the rest of the run's timeout. That of an adopted run goes by the start of its
// supervisor: the clock may have been set since.
func (r *Run) timeLeft(l *sys.ProcessHandle) time.Duration {
	if r.adopted {
		return r.Info.Timeout.D() - l.Age()
	}
	return time.Until(r.Info.StartedAt.Add(r.Info.Timeout.D()))
}

func (r *Run) logError(what string, err error) {
	r.in.log.Error(what, "chat", r.Chat, "run", r.Info.ID, "err", err)
}

// readEnd reads the end of a run from its supervisor's file and its leaf, and ends the processes
// that are left in the leaf.
func (r *Run) readEnd(ctx context.Context, timedOut bool) (End, error) {
	e := End{
		State: chat.RunLost, At: time.Now().UTC(),
		Result: chat.RunResult{Exit: -1, TimedOut: timedOut},
	}
	if f, err := os.Open(filepath.Join(r.dir, "end")); err == nil {
		if said, ok := plan.ReadSupervisorEnd(f); ok {
			e.take(said)
		}
		f.Close()
	}
	e.Result.WallMS = e.At.Sub(r.Info.StartedAt).Milliseconds()
	leaf := r.leaf()
	err := errors.Join(leaf.Kill(ctx), sys.CollectOrphans(r.UID))
	usage, uerr := leaf.Usage()
	e.Result.CPUMS, e.Result.MemoryPeak = usage.CPU.D().Milliseconds(), usage.MemoryPeak
	e.OOMKills = usage.OOMKills
	return e, errors.Join(err, uerr)
}

// take copies the command's end from the supervisor's record.
func (e *End) take(said plan.SupervisorEnd) {
	status := unix.WaitStatus(said.Status)
	e.State, e.At = chat.RunEnded, said.At
	e.Tail = said.Tail[:min(len(said.Tail), plan.MaxTail)]
	e.Result.TimedOut = e.Result.TimedOut || said.TimedOut
	if status.Signaled() {
		e.Result.Signal = sys.SignalName(status.Signal())
	} else {
		e.Result.Exit = status.ExitStatus()
	}
}

// Keep records how a background run ended, after [Run.Watch], and removes its leaf. The run is
// over then. It returns e with the sizes of its output, also after an error.
func (r *Run) Keep(e End) (End, error) {
	err := errors.Join(r.addCounts(&e.Result), r.leaf().Remove())
	if nerr := r.save(resultFile, e); nerr != nil && !errors.Is(nerr, os.ErrNotExist) {
		err = errors.Join(err, nerr)
	}
	r.finish(&e)
	return e, err
}

// addCounts adds the sizes of the output.
func (r *Run) addCounts(res *chat.RunResult) error {
	for name, to := range map[string]*int64{
		chat.Stdout: &res.StdoutBytes, chat.Stderr: &res.StderrBytes,
	} {
		f, err := r.openStream(name)
		if errors.Is(err, chat.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		total, missed, err := stream.NewFile(f, r.Info.OutputMax).Counts()
		f.Close()
		if err != nil {
			return err
		}
		*to = total + missed
		res.Truncated = res.Truncated || missed > 0 || total > r.Info.OutputMax
	}
	return nil
}

// Ended returns how a background run that is over ended. The error is [chat.NoRun] for a run that
// was dropped, and [chat.ErrWrongPhase] for one whose supervisor was ended.
func (r *Run) Ended() (End, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		return End{}, chat.NoRun(r.Chat, r.Info.ID)
	}
	if r.ended.State == chat.RunLost {
		return End{}, fmt.Errorf("cannot tell how run %s ended: its supervisor was ended: %w",
			r.Info.ID, chat.ErrWrongPhase)
	}
	return *r.ended, nil
}

// Open returns the run and, of a background run, its output in the files that its supervisor
// writes, open for reading and nothing else. The caller closes them.
func (r *Run) Open() (stream.OpenRun, error) {
	o := stream.OpenRun{Run: r.Show(), Max: r.Info.OutputMax}
	if !r.Info.Background {
		return o, nil
	}
	var err error
	if o.Stdout, err = r.openStream(chat.Stdout); err != nil {
		return stream.OpenRun{}, err
	}
	if o.Stderr, err = r.openStream(chat.Stderr); err != nil {
		o.Stdout.Close()
		return stream.OpenRun{}, err
	}
	return o, nil
}

// openStream opens a stream's file.
func (r *Run) openStream(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(r.dir, name))
	if os.IsNotExist(err) {
		return nil, chat.NoRun(r.Chat, r.Info.ID) // reaped, or past its retention
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what run %s printed: %w", r.Info.ID, err)
	}
	return f, nil
}
