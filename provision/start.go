package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/tmux"
)

// view is what everything in the session of the chat sees. What only its beginning
// needs is in exposedView.
func (m *Manager) view(rec state.Record) shims.View {
	p := m.profile(rec)
	tmp, varTmp := m.tmpParents(rec.ID)
	tmp, varTmp = filepath.Join(tmp, rec.ID.User()), filepath.Join(varTmp, rec.ID.User())
	if m.units {
		tmp, varTmp = "/tmp", "/var/tmp" // as pam_namespace mounted them
	}
	return shims.View{
		User: rec.ID.User(), UID: rec.UID, Home: m.home(rec.ID),
		Tmp: tmp, VarTmp: varTmp,
		ShmSize: p.Limits.ShmSize, Network: m.network(p), Resolvers: p.Resolvers,
		Shim: m.paths.shim, ShimDir: m.shimDir(p.Name), BinDir: m.binDir(p.Name),
		PromptFIFO: filepath.Join(m.sessionDir(rec.ID), "prompt"), DenialFIFO: m.denialFIFO(rec.ID),
		LogFIFO: m.logFIFO(rec.ID), TmuxConf: tmux.Config(shims.ShellArgv(), shims.LogCommand),
		Vars: slices.Concat(chat.EnvLines(p.Env), chat.EnvLines(rec.Env)), Opened: openedFor(rec, p), Without: m.leftOut(),
		Denied: m.closedTo(rec).Outside,
	}
}

// openedFor is what the profile opens of what system calls do. The probe's session has
// nothing open: it says what the wall of all others does.
func openedFor(rec state.Record, p chat.Profile) shims.Opened {
	if rec.ID == probeID {
		return shims.Opened{}
	}
	return shims.Opened{Netlink: p.AllowNetlink, Filters: p.AllowSeccomp}
}

// plan is what chatd-shim confine does in view v before it execs argv.
func (m *Manager) plan(v shims.View, rec state.Record, dir string, argv, env []string) shims.Plan {
	p := v.Plan(dir, m.opt.LandlockABI, argv, env)
	p.ProcessLimits, p.ReportFD = m.profile(rec).Limits.ProcessLimits, fdReport
	return p
}

// The descriptors of a session's first process, after the three of stdio.
const (
	fdPlan   = 3
	fdReport = 4
	fdInfo   = 5
	fdData   = 6
)

// startSession starts bubblewrap as the chat, in the chat's cgroup, and waits
// until the shell is at its prompt.
func (m *Manager) startSession(ctx context.Context, rec state.Record, prompt *os.File, env []string) (*session, error) {
	var b boundFiles
	defer b.close()
	v, notes, err := m.preparedView(rec)
	if err != nil {
		return nil, err
	}
	m.barrierFor(rec, &b)
	cmd := m.bwrapCommand(rec, v, m.sessionArgv(), env, &b)
	s := &session{id: rec.ID, owner: rec.Owner, uid: rec.UID}
	if err := errors.Join(b.err, m.keepPlan(rec, s, v, b.confine, notes)); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := m.startInGroup(rec, cmd, &b); err != nil {
		return nil, errors.Join(err, m.abandon(rec, nil))
	}
	b.closeChildEnds()
	go collect(cmd)
	m.log.Debug("session", "chat", rec.ID, "born", time.Since(began))
	if err := m.awaitSession(ctx, s, &b, prompt); err != nil {
		err = fmt.Errorf("%w%s", err, b.complaint())
		return nil, errors.Join(err, m.abandon(rec, s.init))
	}
	m.log.Debug("session", "chat", rec.ID, "prompt", time.Since(began))
	s.init.Boot = m.boot
	s.terminal = m.terminal(rec, s)
	return s, nil
}

// sessionArgv starts the terminal's server and ends. Bubblewrap's pid 1 then
// holds the session; where a test leaves the pid namespace out there is none,
// and something else must stay.
func (m *Manager) sessionArgv() []string {
	argv := tmux.StartArgv(shims.Socket, shims.InsideTmux, shims.ShellArgv())
	if m.without(chat.LayerProc) {
		argv = append([]string{"/bin/sh", "-c", `"$@" && exec /bin/sleep infinity`, "sh"}, argv...)
	}
	return argv
}

// bwrapCommand is bubblewrap, as the chat, with argv confined in view v. Its
// stdout and stderr go to a file of fixed size, b.stderr.
func (m *Manager) bwrapCommand(rec state.Record, v shims.View, argv, env []string, b *boundFiles) *exec.Cmd {
	v.InfoFD = fdInfo
	args, files := v.Args(fdData)
	plan := m.plan(v, rec, v.Home, argv, env)
	b.raise, b.prepare = m.furnish(b.raise), m.keepApart(rec, v)
	plan.BarrierFD = fdData + len(files) + 1
	b.plan(plan)
	b.report = b.pipe()
	b.info = b.pipe()
	for _, f := range files {
		b.data(f.Target, f.Content)
	}
	// The arguments go by descriptor too: in the process list they hid everything else.
	b.data("arguments", []byte(strings.Join(args, "\x00")+"\x00"))
	b.addBarrier()
	cmd := exec.Command("bwrap", "--args", fmt.Sprint(fdData+len(files)), "--",
		shims.InsideShim, "confine", "--plan-fd", fmt.Sprint(fdPlan))
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = b.child
	b.stderr = b.stdio("stderr")
	cmd.Stdout, cmd.Stderr = b.stderr, b.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: v.UID, Gid: v.UID, Groups: []uint32{v.UID}},
	}
	return cmd
}

// collect waits for a child without holding a thread for its whole life: only
// when the pidfd says that it has ended is it waited for. How the session ended
// is watch's concern; this only spares the host a zombie.
func collect(cmd *exec.Cmd) {
	if cmd.Process == nil {
		return // systemd's child
	}
	if l, err := sys.HoldProcess(sys.Process{PID: cmd.Process.Pid}); err == nil {
		_ = l.Wait()
		_ = l.Close()
	}
	_ = cmd.Wait()
}

// awaitSession returns when the session is up and its unit, if there is one, is
// bound to it.
func (m *Manager) awaitSession(ctx context.Context, s *session, b *boundFiles, prompt *os.File) error {
	if err := s.awaitStart(ctx, b, prompt); err != nil {
		return err
	}
	if err := m.groups.Settle(s.id, s.init.PID); err != nil {
		return err
	}
	var err error
	s.invocation, err = m.groups.Invocation(s.id)
	return err
}

// awaitStart reads, in the order in which they come: bubblewrap's pid 1, the
// report of what was enforced, and the prompt.
func (s *session) awaitStart(ctx context.Context, b *boundFiles, prompt *os.File) error {
	deadline := time.Now().Add(s.timeout())
	l, err := awaitInit(b, deadline)
	if err != nil {
		return err
	}
	s.init = l
	if err := b.openBarrier(ctx, l, deadline); err != nil {
		return err
	}
	deadline = time.Now().Add(s.timeout())
	var report shims.Report
	if err := readJSON(b.report, deadline, &report); err != nil {
		return fmt.Errorf("cannot confine the session: %w", err)
	}
	if report.Error != "" {
		return fmt.Errorf("cannot confine the session: %s", report.Error)
	}
	s.report = report
	return s.awaitPrompt(ctx, prompt, time.Now().Add(promptPatience))
}

// awaitInit is bubblewrap's pid 1, which bubblewrap names by the host's pid.
func awaitInit(b *boundFiles, deadline time.Time) (*sys.HeldProcess, error) {
	var info struct {
		PID int `json:"child-pid"`
	}
	if err := readJSON(b.info, deadline, &info); err != nil {
		return nil, fmt.Errorf("cannot start bubblewrap: %w", err)
	}
	return sys.HoldProcess(sys.Process{PID: info.PID})
}

// awaitPrompt returns when the shell wrote its byte. A chat whose own .bashrc
// never comes to a prompt still has a session to be repaired in, so that is not
// an error; a session that ended is.
func (s *session) awaitPrompt(ctx context.Context, prompt *os.File, deadline time.Time) error {
	for time.Now().Before(deadline) {
		if err := prompt.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return fmt.Errorf("cannot wait for the prompt: %w", err)
		}
		var b [1]byte
		_, err := prompt.Read(b[:])
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("cannot wait for the prompt: %w", err)
		case !s.init.Alive():
			return fmt.Errorf("cannot start the session: %w", errNoPrompt)
		case ctx.Err() != nil:
			return fmt.Errorf("cannot wait for the prompt: %w", context.Cause(ctx))
		}
	}
	return nil
}
