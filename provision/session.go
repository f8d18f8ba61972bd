package provision

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
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// session is one awake chat: bubblewrap's pid 1, and what is below it.
type session struct {
	id       chat.ID
	uid      uint32
	leader   *leader
	report   shims.Report
	terminal *tmux.Terminal
}

// sessionFile is what a later chatd needs to find the session again. It lies in
// the run directory, so that a reboot, which ends every session, ends it too.
type sessionFile struct {
	Leader process      `json:"leader"`
	Report shims.Report `json:"report"`
}

// startTimeout bounds each wait for a session that does not come up.
const startTimeout = 30 * time.Second

func (m *Manager) sessionDir(id chat.ID) string { return filepath.Join(m.paths.sessions, string(id)) }

// createLimits makes the chat's cgroup with its limits. The CPU quota comes when
// the prompt is up: under a quarter CPU a session takes three times as long to it.
func (m *Manager) createLimits(_ context.Context, rec state.Record) error {
	return m.groups.Create(rec.ID, m.profile(rec).Limits)
}

// removeLimits ends whatever is left in the cgroup and removes it.
func (m *Manager) removeLimits(ctx context.Context, rec state.Record) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := m.groups.Kill(ctx, rec.ID); err != nil {
		return err
	}
	return m.groups.Remove(rec.ID)
}

// createSession starts the process tree of doc.go and returns when the shell's
// prompt is up and every limit stands.
func (m *Manager) createSession(ctx context.Context, rec state.Record) error {
	prompt, err := m.makeSessionDir(rec)
	if err != nil {
		return err
	}
	defer prompt.Close()
	s, err := m.startSession(ctx, rec, prompt)
	if err != nil {
		return err
	}
	if err := m.groups.LimitCPU(rec.ID, m.profile(rec).Limits); err != nil {
		return errors.Join(err, m.abandon(rec, s.leader))
	}
	if err := m.writeSessionFile(s); err != nil {
		return errors.Join(err, m.abandon(rec, s.leader))
	}
	m.keepSession(s)
	return nil
}

// abandon ends a session that did not come up, so that nothing of it is left for
// the steps that are taken back next.
func (m *Manager) abandon(rec state.Record, l *leader) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := m.groups.Kill(ctx, rec.ID)
	if l == nil {
		return err
	}
	return errors.Join(err, l.bury(ctx, rec.UID), l.Close())
}

// keepSession makes the session known, and watches for its end.
func (m *Manager) keepSession(s *session) {
	m.mu.Lock()
	m.sessions[s.id] = s
	m.mu.Unlock()
	go m.watch(s)
}

// removeSession ends every process of the chat by its cgroup: pid 1 of bubblewrap
// ignores SIGTERM, and a process that left its group or its session is still in
// the cgroup.
func (m *Manager) removeSession(ctx context.Context, rec state.Record) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := m.groups.Kill(ctx, rec.ID); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.sessions[rec.ID]
	delete(m.sessions, rec.ID)
	m.mu.Unlock()
	var errs []error
	if s != nil {
		errs = append(errs, s.leader.bury(ctx, rec.UID), s.leader.Close())
	}
	return errors.Join(append(errs, removeTrees(m.paths.sessions, string(rec.ID)))...)
}

// makeSessionDir makes the root-owned directory of the session and in it the
// fifo by which the shell says that its prompt is up. A fifo, because it is no
// socket (one made by root would keep root's uid) and holds at most 64 KiB.
func (m *Manager) makeSessionDir(rec state.Record) (*os.File, error) {
	dir := m.sessionDir(rec.ID)
	if err := removeTrees(m.paths.sessions, string(rec.ID)); err != nil {
		return nil, err
	}
	if err := makeRootDir(dir, 0o711); err != nil {
		return nil, err
	}
	fifo := filepath.Join(dir, "prompt")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		return nil, fmt.Errorf("cannot make %s: %w", fifo, err)
	}
	if err := os.Lchown(fifo, int(rec.UID), int(rec.UID)); err != nil {
		return nil, fmt.Errorf("cannot give %s to uid %d: %w", fifo, rec.UID, err)
	}
	// Read-write, so that neither side waits for the other to open it.
	f, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", fifo, err)
	}
	return f, nil
}

// view is what the session of the chat sees.
func (m *Manager) view(rec state.Record) shims.View {
	p := m.profile(rec)
	return shims.View{
		User: rec.ID.User(), UID: rec.UID, Home: m.home(rec.ID),
		Tmp: filepath.Join(m.paths.tmp, string(rec.ID)), VarTmp: filepath.Join(m.paths.varTmp, string(rec.ID)),
		ShmSize: p.Limits.ShmSize, Network: m.network(p), Resolvers: p.Resolvers,
		Shim: m.paths.shim, ShimDir: m.paths.shims, BinDir: m.binDir(p.Name),
		PromptFIFO: filepath.Join(m.sessionDir(rec.ID), "prompt"),
		TmuxConf:   tmux.Config(shims.ShellArgv()),
		Without:    m.leftOut(),
	}
}

// plan is what chatd-shim confine does in view v before it execs argv.
func (m *Manager) plan(v shims.View, rec state.Record, dir string, argv, env []string) shims.Plan {
	p := v.Plan(dir, m.opt.LandlockABI, argv, env)
	p.NoFile, p.ReportFD = m.profile(rec).Limits.NoFile, fdReport
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
func (m *Manager) startSession(ctx context.Context, rec state.Record, prompt *os.File) (*session, error) {
	var b boundFiles
	defer b.close()
	cmd := m.bwrapCommand(rec, m.view(rec), m.sessionArgv(), &b)
	if b.err != nil {
		return nil, b.err
	}
	began := time.Now()
	if err := m.groups.Start(rec.ID, "session", cmd); err != nil {
		return nil, err
	}
	b.closeChildEnds()
	go collect(cmd)
	m.log.Debug("session", "chat", rec.ID, "born", time.Since(began))
	s := &session{id: rec.ID, uid: rec.UID}
	if err := s.awaitStart(ctx, &b, prompt); err != nil {
		err = fmt.Errorf("%w%s", err, b.complaint())
		return nil, errors.Join(err, m.abandon(rec, s.leader))
	}
	m.log.Debug("session", "chat", rec.ID, "prompt", time.Since(began))
	s.terminal = m.terminal(rec, s)
	return s, nil
}

// sessionArgv starts the terminal's server and ends. Bubblewrap's pid 1 then
// holds the session; where a test leaves the pid namespace out there is none,
// and something else must stay.
func (m *Manager) sessionArgv() []string {
	argv := tmux.StartArgv(shims.Socket, shims.InsideTmux, shims.ShellArgv())
	if m.without(chat.LayerProc) {
		argv = append([]string{"/bin/sh", "-c", `"$@" && exec sleep infinity`, "sh"}, argv...)
	}
	return argv
}

// bwrapCommand is bubblewrap, as the chat, with argv confined in view v. Its
// stdout and stderr go to a file of fixed size, b.stderr.
func (m *Manager) bwrapCommand(rec state.Record, v shims.View, argv []string, b *boundFiles) *exec.Cmd {
	v.InfoFD = fdInfo
	plan := m.plan(v, rec, v.Home, argv, nil)
	b.plan(plan)
	b.report = b.pipe()
	b.info = b.pipe()
	args, files := v.Args(fdData)
	for _, f := range files {
		b.data(f.Target, f.Content)
	}
	args = append(args, "--", shims.InsideShim, "confine", "--plan-fd", fmt.Sprint(fdPlan))
	cmd := exec.Command("bwrap", args...)
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
	if l, err := holdLeader(process{PID: cmd.Process.Pid}); err == nil {
		_ = l.wait()
		_ = l.Close()
	}
	_ = cmd.Wait()
}

// awaitStart reads, in the order in which they come: bubblewrap's pid 1, the
// report of what was enforced, and the prompt.
func (s *session) awaitStart(ctx context.Context, b *boundFiles, prompt *os.File) error {
	deadline := time.Now().Add(startTimeout)
	l, err := innerLeader(b, deadline)
	if err != nil {
		return err
	}
	s.leader = l
	s.leader.Boot, err = bootID()
	if err != nil {
		return err
	}
	var report shims.Report
	if err := readJSON(b.report, deadline, &report); err != nil {
		return fmt.Errorf("cannot confine the session: %w", err)
	}
	if report.Error != "" {
		return fmt.Errorf("cannot confine the session: %s", report.Error)
	}
	s.report = report
	return s.awaitPrompt(ctx, prompt, deadline)
}

// innerLeader is bubblewrap's pid 1, which bubblewrap names by the host's pid.
func innerLeader(b *boundFiles, deadline time.Time) (*leader, error) {
	var info struct {
		PID int `json:"child-pid"`
	}
	if err := readJSON(b.info, deadline, &info); err != nil {
		return nil, fmt.Errorf("cannot start bubblewrap: %w", err)
	}
	return holdLeader(process{PID: info.PID})
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
		case !s.leader.alive():
			return errors.New("cannot start the session: it ended before its prompt")
		case ctx.Err() != nil:
			return fmt.Errorf("cannot wait for the prompt: %w", context.Cause(ctx))
		}
	}
	return nil
}

func (m *Manager) writeSessionFile(s *session) error {
	b, err := json.Marshal(sessionFile{s.leader.process, s.report})
	if err != nil {
		return fmt.Errorf("cannot note session %s: %w", s.id, err)
	}
	aside := filepath.Join(m.sessionDir(s.id), ".new")
	if err := writeNew(aside, b, 0o600); err != nil {
		return fmt.Errorf("cannot note session %s: %w", s.id, err)
	}
	if err := os.Rename(aside, filepath.Join(m.sessionDir(s.id), "session.json")); err != nil {
		return fmt.Errorf("cannot note session %s: %w", s.id, err)
	}
	return nil
}

// adopt finds a session that another chatd started: the same boot, the same
// start time, the chat's uid, inside the chat's cgroup.
func (m *Manager) adopt(rec state.Record) error {
	b, err := os.ReadFile(filepath.Join(m.sessionDir(rec.ID), "session.json"))
	if err != nil {
		return fmt.Errorf("cannot adopt session %s: %w", rec.ID, err)
	}
	var f sessionFile
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("cannot adopt session %s: %w", rec.ID, err)
	}
	if f.Leader.Boot != m.boot || f.Leader.Start == 0 {
		return fmt.Errorf("cannot adopt session %s: it is of another boot", rec.ID)
	}
	l, err := holdLeader(f.Leader)
	if err != nil {
		return err
	}
	s := &session{id: rec.ID, uid: rec.UID, leader: l, report: f.Report}
	if err := m.checkLeader(s); err != nil {
		return errors.Join(err, l.Close())
	}
	s.terminal = m.terminal(rec, s)
	if err := m.groups.LimitCPU(rec.ID, m.profile(rec).Limits); err != nil {
		return errors.Join(err, l.Close())
	}
	m.keepSession(s)
	return nil
}

func (m *Manager) checkLeader(s *session) error {
	uid, err := uidOfPid(s.leader.PID)
	if err != nil || uid != s.uid {
		return fmt.Errorf("cannot adopt session %s: process %d is of uid %d, want %d: %w", s.id, s.leader.PID, uid, s.uid, errors.Join(err, chat.ErrWrongPhase))
	}
	members, err := m.groups.Members(s.id)
	if err != nil {
		return err
	}
	for _, pid := range members {
		if pid == s.leader.PID {
			return nil
		}
	}
	return fmt.Errorf("cannot adopt session %s: process %d is not in its cgroup", s.id, s.leader.PID)
}

// watch waits for the session's end and cleans up after it: when the shell
// ends, the chat is asleep.
func (m *Manager) watch(s *session) {
	if err := s.leader.wait(); err != nil {
		return // closed: somebody else is ending or leaving it
	}
	ctx := context.Background()
	unlock, err := m.locks.lock(ctx, s.id)
	if err != nil {
		return
	}
	defer unlock()
	m.mu.Lock()
	mine := m.sessions[s.id] == s
	m.mu.Unlock()
	rec, err := m.store.Get(s.id)
	if !mine || err != nil {
		return
	}
	m.audit(ctx, rec, "sleep", "done", map[string]string{"why": "the session ended by itself"})
	if err := m.backwards(ctx, "sleep", awakeSteps(), rec); err != nil {
		m.find("session "+string(s.id), err)
	}
}
