package background

import (
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
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
)

// Start starts a background run: its supervisor and, through that, nsenter, whose files b has. It
// returns once the command is confined; the caller calls [Run.Watch] then. After an error only the
// run's entry remains: see [Runs.Forget]. The error is [chat.ErrUnsupported] for a chatd-shim that
// a user other than root may write to, [chat.ErrBusy] for too little room for output and for a session that
// has ended.
func (r *Run) Start(
	ctx context.Context, spec chat.RunSpec, nsenter *exec.Cmd, b *session.Files,
) (err error) {
	leaf := r.leaf()
	if err := leaf.Create(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, leaf.Kill(ctx), leaf.Remove(), r.endSupervisor(),
				safefs.Remove(filepath.Dir(r.dir), r.Info.ID))
		}
	}()
	stdio, err := r.makeFiles(spec)
	if err != nil {
		return err
	}
	defer stdio.Close()
	var own session.Files // the supervisor's
	defer own.Close()
	cmd, ready, err := r.supervisorCommand(nsenter, stdio, &own)
	if err != nil {
		return err
	}
	if err := leaf.Start(cmd); err != nil {
		return err
	}
	b.CloseChildEnds()
	own.CloseChildEnds()
	stdio.CloseChildEnds()
	err = r.startSupervisor(ctx, cmd.Process.Pid, ready)
	go session.Collect(cmd) // after startSupervisor: until it is reaped, a child keeps its pid
	if err != nil {
		return err
	}
	_, err = b.AwaitReport(time.Now().Add(session.StartTimeout))
	if err != nil && !errors.Is(err, session.ErrNotConfined) { // without a report, it does not run
		err = fmt.Errorf("cannot run in the session: it ended on its way in: %w", err)
	}
	return err
}

func (r *Run) leaf() session.Leaf {
	return session.Leaf{Groups: r.in.opt.Groups, Chat: r.Chat, UID: r.UID, Run: r.Info.ID}
}

// maxOverdue is how much later than chatd a supervisor ends a run that timed out.
const maxOverdue = 5 * time.Second

// supervisorCommand returns the supervisor's command, which starts nsenter: see package supervise.
func (r *Run) supervisorCommand(
	nsenter *exec.Cmd, stdio *session.Stdio, own *session.Files,
) (_ *exec.Cmd, ready *os.File, err error) {
	shim := r.in.opt.Shim
	if err := safefs.CheckProgram(shim); err != nil {
		return nil, nil, fmt.Errorf("cannot supervise a run: %w", err)
	}
	deadline := r.Info.StartedAt.Add(r.Info.Timeout.D())
	spec, err := json.Marshal(plan.SupervisorSpec{
		Path: nsenter.Path, Argv: nsenter.Args, Files: len(nsenter.ExtraFiles),
		UID: r.in.opt.UID, Deadline: deadline, Last: deadline.Add(r.Grace + maxOverdue),
		OpenStdin: stdio.StdinW != nil, OutputMax: r.Info.OutputMax,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write the spec of a supervisor: %w", err)
	}
	f := plan.SupervisorFiles{
		Spec: own.Data("spec", spec), Stdin: stdio.StdinW,
		StdoutPipe: stdio.OutR, StderrPipe: stdio.ErrR,
	}
	if ready = own.Pipe(); own.Err != nil {
		return nil, nil, own.Err
	}
	f.Ready = own.Child[len(own.Child)-1]
	keep := func(one *os.File, err error) *os.File {
		own.Child, own.Err = append(own.Child, one), errors.Join(own.Err, err)
		return one
	}
	open := func(name string, flag int) *os.File {
		return keep(os.OpenFile(filepath.Join(r.dir, name), flag|unix.O_NOFOLLOW, 0))
	}
	f.Orders = open("orders", os.O_RDWR|unix.O_NONBLOCK)
	f.StdoutFile, f.StderrFile = open("stdout", os.O_RDWR), open("stderr", os.O_RDWR)
	f.End = open("end", os.O_WRONLY)
	f.Kill = keep(r.in.opt.Groups.OpenKill(r.Chat, r.Info.ID))
	null := keep(os.Open(os.DevNull))
	if own.Err != nil {
		return nil, nil, fmt.Errorf("cannot supervise a run: %w", own.Err)
	}
	cmd := exec.Command(shim, "mind")
	cmd.Args[0] = plan.ProgramName
	// One Go thread suffices: a supervisor only waits and copies.
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=1", "GOMEMLIMIT=16MiB"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.Stdin, stdio.OutW, stdio.ErrW
	cmd.ExtraFiles = append(f.All(null), nsenter.ExtraFiles...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, ready, nil
}

// startSupervisor waits until the command has started, records the supervisor, moves it out of
// the leaf and lets it go on. The record comes first: a later chatd that finds none kills the
// leaf and the supervisor in it.
func (r *Run) startSupervisor(ctx context.Context, pid int, ready *os.File) error {
	var said plan.SupervisorReady
	if err := session.ReadJSON(ready, time.Now().Add(session.StartTimeout), &said); err != nil {
		return fmt.Errorf("cannot supervise run %s: the supervisor has ended: %w", r.Info.ID, err)
	}
	if said.Error != "" {
		return fmt.Errorf("cannot supervise run %s: %s", r.Info.ID, said.Error)
	}
	l, err := sys.OpenProcess(sys.Process{PID: pid})
	if err != nil {
		return err
	}
	r.supervisor = l
	if l.Boot, err = bootID(); err != nil {
		return err
	}
	r.Began(said.PID, nil)
	if err := r.save(runFile, savedRun{r.About, said.PID, l.Process}); err != nil {
		return err
	}
	return r.releaseSupervisor(ctx)
}

// releaseSupervisor moves the supervisor out of the leaf and lets it go on. It is idempotent: a
// chatd that starts after a crash calls it again.
func (r *Run) releaseSupervisor(ctx context.Context) error {
	if err := r.in.opt.Groups.TakeOut(ctx, r.supervisor.PID); err != nil {
		return err
	}
	return r.order(plan.OrderGo)
}

// endSupervisor kills the supervisor, if there is one, of a run that did not start.
func (r *Run) endSupervisor() error {
	l := r.supervisor
	if l == nil {
		return nil
	}
	err := l.Signal(unix.SIGKILL)
	select {
	case <-l.Ended():
	case <-time.After(time.Second):
	}
	return errors.Join(err, l.Close())
}
