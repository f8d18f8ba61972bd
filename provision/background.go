package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/supervise"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

// StartRun starts a background run and returns once its command is confined. The run goes on
// without its caller and without chatd: see package supervise. It ends when its command does,
// with its timeout, by [Manager.EndRun], and when the chat sleeps or is reaped. An ended run is
// retained for [chat.RunRetention], also while the chat sleeps.
func (m *Manager) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	r, err := m.startRun(ctx, id, spec)
	if err != nil {
		return chat.Run{}, err
	}
	return r.show(), nil
}

func (m *Manager) startRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (*liveRun, error) {
	spec.Background, spec.OutputMax = true, cmp.Or(spec.OutputMax, chat.DefaultOutputMax)
	rec, s, r, err := m.newRunOf(ctx, id, spec)
	if err != nil {
		return nil, &notBegun{err}
	}
	detail := r.detail(spec)
	if err := m.auditArgv(ctx, rec, "run", "intent", spec.CommandLine(), detail); err != nil {
		m.forgetRun(r)
		return nil, &notBegun{err}
	}
	if err := m.startBackground(context.WithoutCancel(ctx), rec, s, r, spec); err != nil {
		m.forgetRun(r)
		err = m.notEntered(ctx, rec, spec, detail, err)
		return nil, errors.Join(err, m.auditOutcome(ctx, rec, "run", detail, err))
	}
	m.touch(rec)
	return r, nil
}

// notBegun wraps the error of a run that started no process; the caller may retry it.
type notBegun struct{ error }

// Unwrap is for package errors.
func (e *notBegun) Unwrap() error { return e.error }

// startBackground starts the supervisor and, through it, the command. On failure it removes
// everything that it made.
func (m *Manager) startBackground(ctx context.Context, rec state.Record, s *session, r *liveRun, spec chat.RunSpec) (err error) {
	r.dir = filepath.Join(m.paths.runs, string(rec.ID), r.info.ID)
	if err := m.createRun(rec.ID, r.info.ID); err != nil {
		return err
	}
	var l *sys.HeldProcess
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, m.killRun(ctx, rec, r.info.ID), m.groups.RemoveRun(rec.ID, r.info.ID))
		if l != nil {
			err = errors.Join(err, endSupervisor(l))
		}
		err = errors.Join(err, trees.Remove(filepath.Dir(r.dir), r.info.ID))
	}()
	var b boundFiles
	defer b.close()
	e := m.runEntry(rec, r, spec)
	nsenter, err := m.nsenterCommand(rec, s, e, &b)
	if err != nil {
		return err
	}
	stdio, err := r.makeFiles(rec.UID, spec)
	if err != nil {
		return err
	}
	defer stdio.close()
	var mb boundFiles // the supervisor's own
	defer mb.close()
	cmd, ready, err := m.supervisorCommand(rec, r, nsenter, stdio, &mb)
	if err != nil {
		return err
	}
	if err := m.startInRun(rec.ID, r.info.ID, cmd); err != nil {
		return err
	}
	b.closeChildEnds()
	mb.closeChildEnds()
	stdio.closeChildEnds()
	l, err = m.startSupervisor(ctx, r, cmd.Process.Pid, ready)
	go collect(cmd) // after startSupervisor: until it is reaped, a child keeps its pid
	if err != nil {
		return err
	}
	if err := awaitConfined(&b); err != nil {
		return err
	}
	m.runs.done.Go(func() { m.watchRun(ctx, rec, r, l) })
	return nil
}

// supervisorCommand returns the supervisor's command, which starts nsenter: see package supervise.
func (m *Manager) supervisorCommand(rec state.Record, r *liveRun, nsenter *exec.Cmd, stdio *runStdio, mb *boundFiles) (*exec.Cmd, *os.File, error) {
	if err := trees.CheckProgram(m.paths.shim); err != nil {
		return nil, nil, fmt.Errorf("cannot mind a run: %w", err)
	}
	deadline := r.info.StartedAt.Add(r.info.Timeout.D())
	spec, err := json.Marshal(supervise.Spec{
		Path: nsenter.Path, Argv: nsenter.Args, Files: len(nsenter.ExtraFiles), UID: m.probeUID(), Deadline: deadline, Last: deadline.Add(r.grace + supervisorTimeout),
		OpenStdin: stdio.stdinW != nil, OutputMax: r.info.OutputMax,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write what to mind: %w", err)
	}
	f := supervise.Files{Spec: mb.data("spec", spec), StdoutPipe: stdio.outR, StderrPipe: stdio.errR, Stdin: stdio.stdinW}
	ready := mb.pipe()
	if mb.err != nil {
		return nil, nil, mb.err
	}
	f.Ready = mb.child[len(mb.child)-1]
	open := func(name string, flag int) *os.File {
		one, err := os.OpenFile(filepath.Join(r.dir, name), flag|unix.O_NOFOLLOW, 0)
		mb.err = errors.Join(mb.err, err)
		mb.child = append(mb.child, one)
		return one
	}
	f.Orders = open("orders", os.O_RDWR|unix.O_NONBLOCK)
	f.StdoutFile, f.StderrFile, f.End = open("stdout", os.O_RDWR), open("stderr", os.O_RDWR), open("end", os.O_WRONLY)
	kill, err := m.groups.OpenKill(rec.ID, r.info.ID)
	f.Kill, mb.child = kill, append(mb.child, kill)
	null, nerr := os.Open(os.DevNull)
	mb.child = append(mb.child, null)
	if err := errors.Join(mb.err, err, nerr); err != nil {
		return nil, nil, fmt.Errorf("cannot mind a run: %w", err)
	}
	cmd := exec.Command(m.paths.shim, "mind")
	cmd.Args[0] = shims.ProgramName
	// One Go thread suffices: a supervisor only waits and copies.
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=1", "GOMEMLIMIT=16MiB"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.stdin, stdio.outW, stdio.errW
	cmd.ExtraFiles = append(f.All(null), nsenter.ExtraFiles...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, ready, nil
}

// supervisorTimeout is how much later than chatd a supervisor ends a run that timed out.
const supervisorTimeout = 5 * time.Second

// startSupervisor waits until the command has started, records the supervisor, moves it out of
// the leaf and lets it go on. The record comes first: a later chatd that finds none kills the
// leaf and the supervisor in it.
func (m *Manager) startSupervisor(ctx context.Context, r *liveRun, pid int, ready *os.File) (*sys.HeldProcess, error) {
	var said supervise.Ready
	if err := readJSON(ready, time.Now().Add(startTimeout), &said); err != nil {
		return nil, fmt.Errorf("cannot mind run %s: it has ended: %w", r.info.ID, err)
	}
	if said.Error != "" {
		return nil, fmt.Errorf("cannot mind run %s: %s", r.info.ID, said.Error)
	}
	l, err := sys.HoldProcess(sys.Process{PID: pid})
	if err != nil {
		return nil, err
	}
	l.Boot = m.boot
	r.begun(said.PID, nil)
	if err = r.note(noteFile, runNote{Run: r.info, Taken: r.taken, Grace: r.grace, NSEnter: said.PID, Supervisor: l.Process, Refused: r.refused}); err == nil {
		err = m.releaseSupervisor(ctx, r, l)
	}
	if err != nil {
		return nil, errors.Join(err, endSupervisor(l))
	}
	return l, nil
}

// releaseSupervisor moves the supervisor out of the leaf and lets it go on. It is idempotent: a
// chatd that starts after a crash calls it again.
func (m *Manager) releaseSupervisor(ctx context.Context, r *liveRun, l *sys.HeldProcess) error {
	if err := m.groups.TakeOut(ctx, l.PID); err != nil {
		return err
	}
	return r.order(supervise.OrderGo)
}

// endSupervisor kills a supervisor whose run did not start.
func endSupervisor(l *sys.HeldProcess) error {
	err := l.Signal(unix.SIGKILL)
	waitSome(l.Ended())
	return errors.Join(err, l.Close())
}

// awaitConfined waits for chatd-shim's report: without one, the command does not run.
func awaitConfined(b *boundFiles) error {
	var report shims.Report
	if err := readJSON(b.report, time.Now().Add(startTimeout), &report); err != nil {
		return fmt.Errorf("cannot run in the session: it ended on its way in: %w", err)
	}
	if report.Error != "" {
		return &notConfined{report.Error}
	}
	return nil
}
