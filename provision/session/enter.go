package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
)

// Enter runs a command inside the session as the chat, in a leaf cgroup of its own, behind the
// same walls. It returns when the leaf is empty: the command or ctx has ended, and chatd has
// killed the processes that the command left. A session that has ended is [chat.ErrBusy], a
// command that did not start [ErrNotConfined].
func (s *Starter) Enter(ctx context.Context, in *Session, e Entry) (CommandResult, error) {
	leaf := s.Leaf(in.Chat, in.UID, e.Run)
	if err := leaf.Create(); err != nil {
		return CommandResult{}, err
	}
	out, err := s.enterLeaf(ctx, in, leaf, e)
	if err != nil && !out.Late { // the error may precede the wait, which kills the leaf
		err = errors.Join(err, leaf.Kill(ctx))
	}
	sys.Failpoint("run.over.after")
	usage, usageErr := leaf.Usage()
	if out.Usage = usage; out.Late {
		return out, errors.Join(err, usageErr)
	}
	return out, errors.Join(err, usageErr, leaf.Remove())
}

func (s *Starter) enterLeaf(
	ctx context.Context, in *Session, leaf Leaf, e Entry,
) (out CommandResult, err error) {
	var b Files
	defer b.Close()
	cmd, err := s.Joining(in, e, &b)
	if err != nil {
		return out, err
	}
	stdio, err := NewStdio(in.UID, e.Stdin, e.OpenStdin)
	if err != nil {
		return out, err
	}
	defer stdio.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.Stdin, stdio.OutW, stdio.ErrW
	began := time.Now()
	if err := leaf.Start(cmd); err != nil {
		return out, err
	}
	b.CloseChildEnds()
	stdio.CloseChildEnds()
	if e.Started != nil {
		e.Started(cmd.Process.Pid, stdio.StdinW)
	}
	arrived := b.awaitArrival(func() { stdio.giveAway(e) })
	var kept *captures
	if e.Begun == nil { // a program of chatd's own
		kept = stdio.read(maxOwn)
	}
	w := leaf.wait(ctx, e.Grace, cmd)
	out.Late, out.Left = w.late, w.left
	if err := b.Report.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return out, errors.Join(fmt.Errorf("cannot bound the wait for a report: %w", err), w.err)
	}
	came := <-arrived
	if kept == nil && came != nil && !errors.Is(came, ErrNotConfined) {
		kept = stdio.read(maxWords)
	}
	if err := stdio.endReads(w.over); err != nil {
		return out, errors.Join(err, w.err)
	}
	kept.into(&out)
	out.Wall, out.TimedOut = time.Since(began), w.timedOut
	if out.Exit, out.Signal, err = exitOf(w.err); err == nil && !w.over {
		out.Exit, out.Signal = -1, sys.SignalName(unix.SIGKILL) // how it will end
	}
	if err != nil {
		return out, err
	}
	return out, out.confined(came)
}

// exitOf reads how a command ended; an error that is no exit is chatd's.
func exitOf(err error) (code int, signal string, _ error) {
	if err == nil {
		return 0, "", nil
	}
	exit, ok := err.(*exec.ExitError)
	if !ok {
		return -1, "", fmt.Errorf("cannot wait for the command: %w", err)
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return -1, sys.SignalName(ws.Signal()), nil
	}
	return exit.ExitCode(), "", nil
}

// awaitArrival reads the report beside the run, and calls begin once the walls are up. It sets no
// deadline: its caller does, when the run is over.
func (b *Files) awaitArrival(begin func()) <-chan error {
	arrived := make(chan error, 1)
	go func() {
		_, err := b.AwaitReport(time.Time{})
		if err == nil {
			begin()
		}
		arrived <- err
	}()
	return arrived
}

// confined checks the end of a command by its arrival: without a report, the walls were not up and
// the command did not run, whatever the exit code.
func (out CommandResult) confined(arrived error) error {
	switch {
	case arrived == nil || errors.Is(arrived, ErrNotConfined):
		return arrived
	case out.Signal != "" || out.TimedOut:
		return nil // it ended before it was confined
	}
	return fmt.Errorf("cannot run in the session: exit %d on the way in%s: %w",
		out.Exit, complaint(out.Stderr), ErrNotConfined)
}

// maxWords bounds the kept messages of an nsenter that could not start its command. The chat has
// written nothing to the streams by then.
const maxWords = 4 << 10

// ErrNotConfined is the error of a command that never started: chatd-shim could not apply the
// walls, or could not start the program. The failure is chatd's, not the command's.
var ErrNotConfined = errors.New("not confined")

// NotConfinedError is [ErrNotConfined] with the message of chatd-shim, which names what failed.
type NotConfinedError struct{ Message string }

// Error is chatd-shim's message.
func (e *NotConfinedError) Error() string { return e.Message }

// Unwrap is for package errors.
func (e *NotConfinedError) Unwrap() error { return ErrNotConfined }

// Entry is one command on its way into a session.
type Entry struct {
	Run   string   // the name of the command and of its leaf
	Argv  []string // as the session sees the program
	Env   []string // KEY=value, besides the session's own
	Dir   string   // where it starts
	Stdin []byte
	// View is what the session sees; Limits are those of setrlimit(2).
	View   plan.View
	Limits chat.ProcessLimits
	// OpenStdin leaves stdin open. Started is called once nsenter runs, with its pid and the end
	// of stdin to write to, which is nil unless OpenStdin is set. It may be nil.
	OpenStdin bool
	Started   func(nsenter int, stdin *os.File)
	// Grace is the time between SIGTERM and SIGKILL; zero kills the command immediately.
	Grace time.Duration
	// Begun is given the read ends of the streams, with the run's name, once the command is behind
	// its walls. nil keeps at most 1 MiB of each here.
	Begun func(run string, stdout, stderr *os.File)
}

// maxOwn bounds the kept output of each stream of chatd's own programs, in bytes.
const maxOwn = 1 << 20

// CommandResult is how a command in a session ended.
type CommandResult struct {
	Exit   int    // -1 if Signal is set
	Signal string // the signal's name, as kill(1) has it
	// Stdout and Stderr are the kept output; see [Entry].Begun.
	Stdout   []byte
	Stderr   string
	Usage    chat.Usage
	TimedOut bool // its context's deadline ended it
	Wall     time.Duration
	// Late: some of its killed processes still live; chatd waits for them in the background.
	Late bool
	Left int // the processes that the command left running, which were ended
}
