package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// Groups are the cgroups of commands in sessions: [cgroup.FS] or [cgroup.Units]; see there.
type Groups interface {
	CreateRun(id chat.ID, run string) error
	Start(id chat.ID, leaf string, cmd *exec.Cmd) error
	SignalRun(id chat.ID, run string, sig syscall.Signal, except int) (left int, err error)
	KillRun(ctx context.Context, id chat.ID, run string) error
	RunUsage(id chat.ID, run string) (chat.Usage, error)
	RemoveRun(id chat.ID, run string) error
}

// Leaf is the cgroup of one command in a session and of every process that the command forks. No
// two leaves of a host have the same name: a process started in a killed leaf would end
// immediately.
type Leaf struct {
	Groups Groups
	Later  *Later // of [Leaf.End] alone
	Chat   chat.ID
	UID    uint32 // the chat's
	Run    string // the command's name
}

// NewRun returns a name for a command of that kind, which no other leaf of this host ever has.
func NewRun(kind string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return fmt.Sprintf("%s-%x", kind, b)
}

// Leaf returns the leaf of the command named run in a chat's session. The cgroup need not exist.
func (s *Starter) Leaf(id chat.ID, uid uint32, run string) Leaf {
	return Leaf{Groups: s.opt.Groups, Later: s.opt.Later, Chat: id, UID: uid, Run: run}
}

// Create makes the leaf. It is [chat.ErrBusy] where the session has ended.
func (l Leaf) Create() error {
	defer sys.Failpoint("run.leaf.after")
	return asEnded(l.Chat, l.Groups.CreateRun(l.Chat, l.Run))
}

// Start starts a command in the leaf. The command may end the session before Start returns.
func (l Leaf) Start(cmd *exec.Cmd) error {
	defer sys.Failpoint("run.command.after")
	return asEnded(l.Chat, l.Groups.Start(l.Chat, "runs/"+l.Run, cmd))
}

// asEnded turns the error of what is not there into that of a session which has just ended, as by a
// run that killed it: its cgroups were removed, but the caller's chat exists.
func asEnded(id chat.ID, err error) error {
	if errors.Is(err, chat.ErrNotFound) {
		return fmt.Errorf("cannot enter the session of chat %s: it has just ended; the next call wakes "+
			"the chat: %w", id, chat.ErrBusy)
	}
	return err
}

// Term sends SIGTERM to every process in the leaf, and waits until the leaf is empty, at most
// grace. It spares nsenter, which ends as its command does and so reports how the command ended.
func (l Leaf) Term(grace time.Duration, nsenter int) error {
	if grace <= 0 {
		return nil
	}
	left, err := l.signal(unix.SIGTERM, nsenter)
	for end := time.Now().Add(grace); err == nil && left > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		left, err = l.signal(0, 0)
	}
	return err
}

// signal signals every process in the leaf but one, and returns how many there are: none where the
// session has ended, and took the leaf with it.
func (l Leaf) signal(sig unix.Signal, spare int) (left int, err error) {
	left, err = l.Groups.SignalRun(l.Chat, l.Run, sig, spare)
	if errors.Is(err, chat.ErrNotFound) {
		return 0, nil
	}
	return left, err
}

// Kill kills the leaf even if ctx has ended. The wait is bounded: a process in
// uninterruptible sleep ends only when its device answers.
func (l Leaf) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StartTimeout)
	defer cancel()
	return l.Groups.KillRun(ctx, l.Chat, l.Run)
}

// End is Kill. If the last process dies slowly, late is true, and the leaf is removed in the
// background. waited is closed once the leaf's first process was reaped.
func (l Leaf) End(waited <-chan struct{}) (late bool, err error) {
	about := "run " + l.Run + " of chat " + string(l.Chat)
	return l.Later.Do(about, answerTimeout, func(ctx context.Context) error {
		err := l.Groups.KillRun(ctx, l.Chat, l.Run)
		select {
		case <-waited:
		case <-ctx.Done():
		}
		return errors.Join(err, sys.CollectOrphans(l.UID))
	}, func(context.Context) error { return l.Remove() })
}

// Usage returns the command's usage. A leaf that ended with its session has none.
func (l Leaf) Usage() (chat.Usage, error) {
	usage, err := l.Groups.RunUsage(l.Chat, l.Run)
	if errors.Is(err, chat.ErrNotFound) {
		err = nil
	}
	return usage, err
}

// Remove removes the leaf, in which no process is left.
func (l Leaf) Remove() error { return l.Groups.RemoveRun(l.Chat, l.Run) }

// StartTimeout bounds each wait for a step of a start or of an end.
const StartTimeout = 30 * time.Second

// Collect reaps a child without holding a thread for its whole life: it calls wait4(2) only once
// the pidfd shows that the child has ended. It does not wait for a command that systemd started,
// which is not a child.
func Collect(cmd *exec.Cmd) {
	if cmd.Process == nil {
		return
	}
	if l, err := sys.OpenProcess(sys.Process{PID: cmd.Process.Pid}); err == nil {
		_ = l.Wait()
		_ = l.Close()
	}
	_ = cmd.Wait()
}

// wait waits for the command or for ctx, and then ends the whole leaf. It does not wait for pipes
// to close, which a descendant may hold open, and waits only briefly for killed processes.
func (l Leaf) wait(ctx context.Context, grace time.Duration, cmd *exec.Cmd) (w waitedRun) {
	ended, waited := make(chan error, 1), make(chan struct{})
	go func() { ended <- cmd.Wait(); close(waited) }()
	var termErr error
	select {
	case w.err = <-ended:
		w.over = true
		w.left, termErr = l.signal(0, 0)
	case <-ctx.Done():
		w.timedOut = errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		termErr = l.Term(grace, cmd.Process.Pid)
	}
	// The OOM killer may end nsenter with its command: the command is an orphan then.
	late, killErr := l.End(waited)
	if w.late = late; !w.over {
		select {
		case w.err = <-ended:
			w.over = true
		default:
		}
	}
	// A command's own end stays apart from trouble in cleaning up.
	if err := errors.Join(termErr, killErr); err != nil {
		w.err = errors.Join(err, w.err)
	}
	return w
}

// waitedRun is how the wait for a command ended.
type waitedRun struct {
	err      error
	timedOut bool
	over     bool // the command was waited for
	left     int  // the processes that the command left running
	late     bool // some process of its leaf still lives, and ends in the background
}
