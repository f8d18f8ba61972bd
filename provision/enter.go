package provision

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/stream"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/tmux"
)

// errNotConfined is the error of a run that never started: chatd-shim could not apply the
// walls, or could not start the program. The failure is chatd's, not the command's.
var errNotConfined = errors.New("not confined")

// notConfined is errNotConfined with the message of chatd-shim, which names what failed.
type notConfined struct{ said string }

func (e *notConfined) Error() string { return e.said }
func (e *notConfined) Unwrap() error { return errNotConfined }

// entry is one command on its way into a session.
type entry struct {
	run   string
	argv  []string
	env   []string
	dir   string
	stdin []byte
	// openStdin leaves stdin open. started is called once nsenter runs, with its pid and the end
	// of stdin to write to, which is nil unless openStdin is set.
	openStdin bool
	started   func(nsenter int, stdin *os.File)
	// network is the session's kind of network; empty means its profile's.
	network chat.Network
	// grace is how long it may take to end after SIGTERM; zero kills it immediately.
	grace time.Duration
	// begun is given the read ends of the streams, with the run's name, once the command is
	// behind its walls; nil keeps at most ownOutput of each here.
	begun func(run string, stdout, stderr *os.File)
}

// ownOutput bounds what is kept of each stream of chatd's own programs.
const ownOutput = 1 << 20

// entered is how a command in a session ended.
type entered struct {
	exit           int
	signal         string
	stdout, stderr stream.Capture
	usage          chat.Usage
	timedOut       bool
	wall           time.Duration
	// late: some of its killed processes still live; chatd waits for them after the caller left.
	late bool
}

// enter runs a command inside the session as the chat, in a leaf cgroup of its own, behind the
// same walls. It returns when the leaf is empty: the command or ctx has ended, and chatd has
// killed the processes that the command left.
func (m *Manager) enter(ctx context.Context, rec state.Record, s *session, e entry) (entered, error) {
	if err := m.createRun(rec.ID, e.run); err != nil {
		return entered{}, err
	}
	out, err := m.enterLeaf(ctx, rec, s, e)
	if err != nil && !out.late { // it may have failed before the wait, which kills the leaf
		err = errors.Join(err, m.killRun(ctx, rec, e.run))
	}
	sys.Failpoint("run.over.after")
	usage, usageErr := m.groups.RunUsage(rec.ID, e.run)
	if errors.Is(usageErr, chat.ErrNotFound) {
		usageErr = nil // the session ended with the command, and its leaf was removed with it
	}
	if out.usage = usage; out.late {
		return out, errors.Join(err, usageErr)
	}
	return out, errors.Join(err, usageErr, m.groups.RemoveRun(rec.ID, e.run))
}

// createRun makes the leaf of a run.
func (m *Manager) createRun(id chat.ID, run string) error {
	defer sys.Failpoint("run.leaf.after")
	return asEnded(id, m.groups.CreateRun(id, run))
}

// startInRun starts a command in the leaf of a run. The command may end the session before
// startInRun returns.
func (m *Manager) startInRun(id chat.ID, run string, cmd *exec.Cmd) error {
	defer sys.Failpoint("run.command.after")
	return asEnded(id, m.groups.Start(id, "runs/"+run, cmd))
}

// asEnded turns [chat.ErrNotFound] into the error of a session that has ended: its cgroups were
// removed, but the caller's chat exists.
func asEnded(id chat.ID, err error) error {
	if errors.Is(err, chat.ErrNotFound) {
		return fmt.Errorf("cannot enter the session of chat %s: it has ended: %v: %w", id, err, chat.ErrWrongPhase)
	}
	return err
}

func (m *Manager) enterLeaf(ctx context.Context, rec state.Record, s *session, e entry) (out entered, err error) {
	var b boundFiles
	defer b.close()
	cmd, err := m.nsenterCommand(rec, s, e, &b)
	if err != nil {
		return out, err
	}
	stdio, err := newRunStdio(rec.UID, e.stdin, e.openStdin)
	if err != nil {
		return out, err
	}
	defer stdio.close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.stdin, stdio.outW, stdio.errW
	began := time.Now()
	if err := m.startInRun(rec.ID, e.run, cmd); err != nil {
		return out, err
	}
	b.closeChildEnds()
	stdio.closeChildEnds()
	if e.started != nil {
		e.started(cmd.Process.Pid, stdio.stdinW)
	}
	arrived := b.awaitArrival(func() { stdio.giveAway(e) })
	reads := stdio.readOwn(&out, e)
	w := m.waitRun(ctx, rec, e, cmd)
	out.late = w.late
	came, err := b.arrival(arrived)
	if err != nil {
		return out, errors.Join(err, w.err)
	}
	if reads == nil && came.err != nil {
		reads = stdio.read(&out, maxWords)
	}
	if err := stdio.endReads(w.over); err != nil {
		return out, errors.Join(err, w.err)
	}
	if reads != nil {
		<-reads
	}
	out.wall, out.timedOut = time.Since(began), w.timedOut
	if out.exit, out.signal, err = exitOf(w.err); err == nil && !w.over {
		out.exit, out.signal = -1, sys.SignalName(unix.SIGKILL) // how it will end
	}
	if err != nil {
		return out, err
	}
	return out, came.confinedOr(out)
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

// arrival is what chatd-shim reported of its walls, or that it did not.
type arrival struct {
	report shims.Report
	err    error
}

// awaitArrival reads the report beside the run, and calls begin once the walls are up.
func (b *boundFiles) awaitArrival(begin func()) <-chan arrival {
	arrived := make(chan arrival, 1)
	go func() {
		var a arrival
		if a.err = readReport(b.report, &a.report); a.err == nil && a.report.Error == "" {
			begin()
		}
		arrived <- a
	}()
	return arrived
}

// arrival is that of a run that has ended, or whose processes do not.
func (b *boundFiles) arrival(arrived <-chan arrival) (arrival, error) {
	if err := b.report.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return arrival{}, fmt.Errorf("cannot bound the wait for a report: %w", err)
	}
	return <-arrived, nil
}

// confinedOr checks the report: without one, the walls were not up and the command did not run,
// whatever the exit code.
func (a arrival) confinedOr(out entered) error {
	switch {
	case a.err == nil && a.report.Error == "":
		return nil
	case a.report.Error != "":
		return &notConfined{a.report.Error}
	case out.signal != "" || out.timedOut:
		return nil // it ended before it was confined
	}
	return fmt.Errorf("cannot run in the session: exit %d on the way in%s: %w",
		out.exit, said(out), errNotConfined)
}

// maxWords bounds what is kept of what nsenter prints of a command that it did not bring in. The
// chat has written nothing to its streams by then.
const maxWords = 4 << 10

// said is what nsenter printed.
func said(out entered) string {
	if out.stderr.Total() == 0 {
		return ""
	}
	return ": " + chat.QuoteOutput(out.stderr.Text())
}

// nsenterCommand joins the namespaces of the session's init process. It runs as root: the chat
// may not join them, because bubblewrap's inner user namespace has another owner. nsenter sets
// neither no_new_privs nor the bounding set; chatd-shim confine does.
func (m *Manager) nsenterCommand(rec state.Record, s *session, e entry, b *boundFiles) (*exec.Cmd, error) {
	namespaces, err := s.init.Namespaces()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, chat.ErrWrongPhase)
	}
	m.refresh(s)
	v := m.sessionView(rec, s)
	v.Network = cmp.Or(e.network, v.Network)
	plan := m.plan(v, rec, e.dir, e.argv, e.env)
	plan.Setsid = true // nsenter's session is outside, where the chat cannot name it
	b.plan(plan)
	b.report = b.pipe()
	var args []string
	for _, n := range namespaces {
		option := strings.Replace(n.Type, "mnt", "mount", 1) // nsenter(1)'s name for it
		args = append(args, fmt.Sprintf("--%s=/proc/self/fd/%d", option, 3+len(b.child)))
		b.child = append(b.child, n.File)
	}
	uid := strconv.FormatUint(uint64(rec.UID), 10)
	args = append(args, "-S", uid, "-G", uid, "--", shims.InsideShim, "confine", "--plan-fd", fmt.Sprint(fdPlan))
	cmd := exec.Command("nsenter", args...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = b.child
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, b.err
}

// terminal is the chat's tmux, each client of which enters the session anew.
func (m *Manager) terminal(rec state.Record, s *session) *tmux.Terminal {
	return tmux.New(shims.Socket, func(ctx context.Context, stdin []byte, argv []string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, clientTimeout)
		defer cancel()
		out, err := m.enter(ctx, rec, s, entry{run: m.newRun("tty"), argv: argv, dir: m.home(rec.ID), stdin: stdin})
		switch {
		case err != nil && s.endsSoon(): // its cgroup was removed, or its process cannot be joined
			m.log.Debug("a terminal's client met the end of its session", "chat", rec.ID, "err", err)
			return nil, fmt.Errorf("cannot use the terminal of chat %s: its session ended meanwhile: %w", rec.ID, chat.ErrWrongPhase)
		case err != nil:
			return nil, err
		case out.timedOut:
			return nil, fmt.Errorf("cannot talk to tmux of chat %s within %s: %w", rec.ID, clientTimeout, chat.ErrBusy)
		case out.exit != 0 || out.signal != "":
			return nil, fmt.Errorf("cannot use the terminal of chat %s: tmux says %s%s: %w", rec.ID, chat.QuoteOutput(out.stderr.Text()), m.outOfMemory(rec, out.usage.OOMKills), chat.ErrWrongPhase)
		}
		return out.stdout.Bytes(), nil
	})
}

// clientTimeout bounds a tmux client: the server belongs to the chat and may not answer.
const clientTimeout = 20 * time.Second

// newRun returns a name that no other leaf of this host ever has: a process started in a leaf
// that was killed would end immediately.
func (m *Manager) newRun(kind string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return fmt.Sprintf("%s-%x", kind, b)
}
