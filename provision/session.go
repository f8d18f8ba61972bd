package provision

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/console"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// liveSession is one awake chat.
type liveSession struct {
	*session.Session
	owner    string
	terminal *tmux.Terminal
	// endedFor is the reason for which the daemon ended it without a request, nil if it did not.
	endedFor atomic.Pointer[string]
	// ending: chatd has begun to end its processes.
	ending atomic.Bool
	// inside counts the commands that chatd has in it; freezing is held while it is frozen or
	// thawed.
	inside   atomic.Int32
	freezing sync.Mutex
	// log is the log of its terminal's output; stopLog ends the goroutine that writes it.
	log     *console.Recording
	stopLog context.CancelFunc
	// adopted: an earlier chatd started it.
	adopted bool
	// behind are the limits that its cgroup does not have as they are recorded; nil if none.
	behind atomic.Pointer[[]string]
	// limitedAt is when a patch changed its limits last; nil if none.
	limitedAt atomic.Pointer[time.Time]
	// meter counts what its limits did; meterMu is held until that is reported.
	meter   cgroup.HitMeter
	meterMu sync.Mutex
}

// lives reports whether there is a session that chatd is not ending.
func (s *liveSession) lives() bool { return s != nil && !s.ending.Load() && s.Init.Alive() }

// sessionDir is root's directory of the chat's session.
func (m *Manager) sessionDir(id chat.ID, uid uint32) session.Dir {
	return session.Dir{Parent: m.paths.sessions, Chat: id, UID: uid}
}

// createLimits makes the chat's cgroup with its limits. The CPU quota is set once the prompt is
// up: under a quarter CPU a session takes three times as long to reach it.
func (m *Manager) createLimits(_ context.Context, rec state.Record) error {
	return m.groups.Create(rec.ID, m.profile(rec).Limits)
}

// removeLimits kills the processes that remain in the cgroup, and what is done beside them, and
// removes it.
func (m *Manager) removeLimits(ctx context.Context, rec state.Record) error {
	ctx, cancel := context.WithTimeout(ctx, session.StartTimeout)
	defer cancel()
	for _, id := range append(m.archive.besides(rec.ID), rec.ID) {
		if err := m.starter.Kill(ctx, id, rec.UID); err != nil {
			return err
		}
	}
	return m.groups.Remove(rec.ID)
}

// createSession starts the process tree of doc.go and returns when the shell's
// prompt is up and every limit stands.
func (m *Manager) createSession(ctx context.Context, rec state.Record) error {
	dir := m.sessionDir(rec.ID, rec.UID)
	prompt, err := dir.Make(m.shimPolicy(rec))
	if err != nil {
		return err
	}
	defer prompt.Close()
	if err := m.writeTrust(rec); err != nil {
		return err
	}
	if err := m.makeInstanceDirs(rec); err != nil { // the chat may have filled its disk, and can wake to empty it
		m.log.Warn("a chat wakes without its directories", "chat", rec.ID, "why", err)
	}
	s, err := m.startSession(ctx, rec, prompt, nil)
	if errors.Is(err, session.ErrNoPrompt) {
		m.log.Warn("starting a session without the chat's own ~/.bashrc", "chat", rec.ID, "why", err)
		s, err = m.startSession(ctx, rec, prompt, []string{plan.PlainShell + "=1"})
	}
	if err != nil {
		return err
	}
	if err := m.groups.LimitCPU(rec.ID, m.profile(rec).Limits); err != nil {
		return errors.Join(err, m.starter.Abandon(rec.ID, rec.UID, s.Init))
	}
	if err := s.Write(dir); err != nil {
		return errors.Join(err, m.starter.Abandon(rec.ID, rec.UID, s.Init))
	}
	m.keepSession(s)
	return nil
}

// startSession starts the session and its terminal, and returns when the shell is at its prompt.
func (m *Manager) startSession(ctx context.Context, rec state.Record, prompt *os.File, env []string) (*liveSession, error) {
	v, notes, err := m.preparedView(rec)
	if err != nil {
		return nil, err
	}
	spec := m.spec(rec, v)
	spec.Argv, spec.Env = session.TerminalArgv(v), env
	plan := m.startOf(rec, spec, notes).Begin(m.log)
	in, err := m.starter.Start(ctx, spec, prompt)
	if err != nil {
		return nil, err
	}
	masked := targets(v.Masked)
	in.Plan, in.Basis = &plan, m.basis(rec)
	in.Masked.Store(&masked)
	s := &liveSession{Session: in, owner: rec.Owner}
	s.terminal = m.terminal(rec, s)
	return s, nil
}

// spec is a session of the chat in view v, without its program.
func (m *Manager) spec(rec state.Record, v plan.View) session.Spec {
	return session.Spec{
		Chat: rec.ID, View: v, Limits: m.processLimits(rec), Rules: m.barrier(rec,
			v),
	}
}

// keepSession registers the session and watches for its end.
func (m *Manager) keepSession(s *liveSession) {
	s.stopLog = func() {}
	m.policy.Began(s.Chat)
	m.record(s)
	m.mu.Lock()
	m.sessions[s.Chat] = s
	m.mu.Unlock()
	go m.watch(s)
}

// removeSession ends every process of the chat by its cgroup. Pid 1 of bubblewrap ignores SIGTERM,
// and a process that left its process group or its session is still in the cgroup.
func (m *Manager) removeSession(ctx context.Context, rec state.Record) error {
	ctx, cancel := context.WithTimeout(ctx, session.StartTimeout)
	defer cancel()
	if s := m.session(rec.ID); s != nil {
		s.ending.Store(true)
	}
	if err := m.starter.Kill(ctx, rec.ID, rec.UID); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.sessions[rec.ID]
	delete(m.sessions, rec.ID)
	m.mu.Unlock()
	m.clearFinding(limitsOf(rec.ID))
	var err error
	if s != nil {
		err = errors.Join(s.Init.WaitExit(ctx, rec.UID), s.Init.Close())
	}
	return errors.Join(err, m.gateway.Close(ctx, rec.ID), m.policy.Drop(ctx, rec.ID),
		m.sessionDir(rec.ID, rec.UID).Remove())
}
