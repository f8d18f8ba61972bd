package provision

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/terminal"
	"github.com/chatd/chatd/provision/view"
)

// sessions starts, adopts and ends the sessions of awake chats, and lets commands into them.
type sessions struct {
	*chats
	starter *session.Starter
	mounts  *mounts
	disk    *disk
	gateway *gateway.Gateway
	archive *archives.Activity
	runs    *background.Runs
	logs    *terminal.Logs
	done    sync.WaitGroup
	bg      context.Context // ends with the Manager
}

// createLimits makes the chat's cgroup with its limits.
func (ss *sessions) createLimits(_ context.Context, rec subject) error {
	return ss.groups.Create(rec.ID, rec.profile.Limits)
}

// removeLimits kills the processes that remain in the cgroup, and what is done beside them, and
// removes it.
func (ss *sessions) removeLimits(ctx context.Context, rec subject) error {
	ctx, cancel := context.WithTimeout(ctx, session.StartTimeout)
	defer cancel()
	for _, id := range append(ss.archive.Besides(rec.ID), rec.ID) {
		if err := ss.starter.Kill(ctx, id, rec.UID); err != nil {
			return err
		}
	}
	return ss.groups.Remove(rec.ID)
}

// createSession starts the process tree of doc.go and returns when the shell's
// prompt is up and every limit stands.
func (ss *sessions) createSession(ctx context.Context, rec subject) error {
	dir := ss.dirs.sessionDir(rec.ID, rec.UID)
	prompt, err := dir.Make(ss.policy.ForShims(rec.rules()))
	if err != nil {
		return err
	}
	defer prompt.Close()
	if len(rec.profile.Secrets) > 0 {
		if err := ss.secrets.writeTrust(dir); err != nil {
			return err
		}
	}
	if err := ss.dirs.MakeInstanceDirs(rec.Record); err != nil { // the chat may have filled its disk, and can wake to empty it
		ss.log.Warn("a chat wakes without its directories", "chat", rec.ID, "why", err)
	}
	s, err := ss.startSession(ctx, rec, prompt, nil)
	if errors.Is(err, session.ErrNoPrompt) {
		ss.log.Warn("starting a session without the chat's own ~/.bashrc", "chat", rec.ID, "why", err)
		s, err = ss.startSession(ctx, rec, prompt, []string{plan.PlainShell + "=1"})
	}
	if err != nil {
		return err
	}
	// The CPU quota is set now: under a quarter CPU a session takes three times as long to its prompt.
	if err = ss.groups.LimitCPU(rec.ID, rec.profile.Limits); err == nil {
		err = s.Write(dir)
	}
	if err != nil {
		return errors.Join(err, ss.starter.Abandon(rec.ID, rec.UID, s.Init))
	}
	ss.keepSession(s)
	return nil
}

// startSession starts the session and its terminal, and returns when the shell is at its prompt.
func (ss *sessions) startSession(
	ctx context.Context, rec subject, prompt *os.File, env []string,
) (*liveSession, error) {
	v, notes, err := ss.mounts.next(rec)
	if err == nil { // the home is made ready for it; the caller holds the chat's lock
		err = ss.mounts.views.MakeMountPoints(ss.mounts.viewer(rec), v.Exposed)
	}
	if err != nil {
		return nil, err
	}
	spec := ss.spec(rec, v)
	spec.Env = env
	plan := ss.startOf(rec, spec, notes).Begin(ss.log)
	in, err := ss.starter.Start(ctx, spec, prompt)
	if err != nil {
		return nil, err
	}
	masked := targets(v.Masked)
	in.Plan, in.Basis = &plan, ss.mounts.fingerprint(rec)
	in.Masked.Store(&masked)
	s := &liveSession{Session: in}
	s.terminal = ss.terminal(rec, s)
	return s, nil
}

// spec is a session of the chat in view v.
func (ss *sessions) spec(rec subject, v plan.View) session.Spec {
	return session.Spec{Chat: rec.ID, View: v, Argv: session.TerminalArgv(v),
		Limits: ss.disk.processLimits(rec), Rules: ss.barrier(rec, v)}
}

// keepSession registers the session and watches for its end.
func (ss *sessions) keepSession(s *liveSession) {
	s.stopLog = func() {}
	ss.policy.Began(s.Chat)
	ss.record(s)
	ss.awake.Store(s.Chat, s)
	go ss.watch(s)
}

// removeSession ends every process of the chat by its cgroup. Pid 1 of bubblewrap ignores SIGTERM,
// and a process that left its process group or its session is still in the cgroup.
func (ss *sessions) removeSession(ctx context.Context, rec subject) error {
	ctx, cancel := context.WithTimeout(ctx, session.StartTimeout)
	defer cancel()
	if s := ss.chats.session(rec.ID); s != nil {
		s.ending.Store(true)
	}
	if err := ss.starter.Kill(ctx, rec.ID, rec.UID); err != nil {
		return err
	}
	s := ss.chats.session(rec.ID)
	ss.awake.Delete(rec.ID)
	ss.trail.Report(aboutLimits(rec.ID), nil)
	var err error
	if s != nil {
		err = errors.Join(s.Init.WaitExit(ctx, rec.UID), s.Init.Close())
	}
	return errors.Join(err, ss.gateway.Close(ctx, rec.ID), ss.policy.Drop(ctx, rec.ID),
		ss.dirs.sessionDir(rec.ID, rec.UID).Remove())
}

// adopt takes over a session that an earlier chatd started; see [session.Starter.Adopt].
func (ss *sessions) adopt(rec subject) error {
	in, err := ss.starter.Adopt(ss.dirs.sessionDir(rec.ID, rec.UID))
	if err != nil {
		return err
	}
	s := &liveSession{Session: in, adopted: true}
	s.terminal = ss.terminal(rec, s)
	if err := ss.bringUpToDate(rec, s); err != nil {
		return errors.Join(err, in.Init.Close())
	}
	ss.keepSession(s)
	ss.log.Info("adopted a session", "chat", rec.ID)
	return nil
}

// bringUpToDate gives an adopted session what the config says by now.
func (ss *sessions) bringUpToDate(rec subject, s *liveSession) error {
	// A chatd that crashed while it started the session may have left the quota lifted.
	if err := ss.applyLimits(rec, s, false); err != nil && !errors.Is(err, chat.ErrBusy) {
		return err
	}
	if err := ss.policy.Apply(context.Background(), rec.rules(), s.Init); err != nil {
		return err
	}
	if err := ss.policy.ForgetMasks(rec.rules(), s.Session, ss.dirs.sessionDir(rec.ID, rec.UID)); err != nil {
		return err
	}
	network := ss.layers.Network(rec.profile)
	if s.Plan != nil {
		network = s.Plan.Network // that of its profile when it began
	}
	if network == chat.NetworkOwn {
		if err := ss.gateway.Adopt(rec.way(), s.Init); err != nil {
			return err
		}
	}
	ss.trail.Report("shims of chat "+string(rec.ID),
		ss.dirs.sessionDir(rec.ID, rec.UID).WritePolicy(ss.policy.ForShims(rec.rules())))
	counters, err := ss.groups.hits(rec.ID)
	if err != nil {
		return err
	}
	s.meter.Begin(counters)
	return nil
}

// barrier returns what root does in a session that begins, before its program goes on: its network
// is set up and its file rules are applied. It is nil if there is nothing to do.
func (ss *sessions) barrier(rec subject, v plan.View) func(context.Context, *sys.ProcessHandle) error {
	rules := ss.policy.Barrier(rec.rules())
	if v.Network != chat.NetworkOwn {
		return rules
	}
	return func(ctx context.Context, init *sys.ProcessHandle) error {
		if err := ss.gateway.Open(ctx, rec.way(), init); err != nil || rules == nil {
			return err
		}
		return rules(ctx, init)
	}
}

// record keeps what the session prints until it ends.
func (ss *sessions) record(s *liveSession) {
	l, err := ss.logs.Record(s.Chat, ss.dirs.sessionDir(s.Chat, s.UID).Log())
	switch {
	case errors.Is(err, os.ErrNotExist):
		ss.log.Debug("not keeping what a terminal prints", "chat", s.Chat, "why", err)
		return
	case err != nil:
		ss.log.Error("cannot keep what a terminal prints", "chat", s.Chat, "error", err)
		return
	}
	s.log = l
	if s.adopted {
		if err := l.Recall(); err != nil {
			ss.log.Warn("cannot tell what the shell of an adopted session said last", "chat", s.Chat,
				"error", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stopLog = stop
	ss.done.Go(func() {
		l.Keep(ctx, terminal.Keeping{
			Alive: s.Init.Alive, Printed: func() { ss.store.Touch(s.Chat, time.Now()) },
			Warn: func(what string, err error) { ss.log.Warn(what, "chat", s.Chat, "error", err) },
		})
	})
}

// startOf is the spec as a plan tells it.
func (ss *sessions) startOf(rec subject, spec session.Spec, notes []string) view.Start {
	s := view.Start{
		Chat: rec.ID, Profile: rec.Profile, View: spec.View, Plan: ss.starter.Plan(spec),
		Apart: ss.starter.StagesOverlays(spec.View), Notes: notes,
	}
	if ss.policy.Enforced(rec.rules()) {
		s.Rules = ss.policy.File(rec.Profile).Name
	}
	return s
}
