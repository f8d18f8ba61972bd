package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filecall"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/session"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// oneShot does a call for a sleeping chat in a session without a terminal, whose only process
// is the tool. The session has the chat's limits and walls, runs no code of the chat, and ends
// with the call.
//
// The call holds the chat's lock: a wake or another tool waits. The call is bounded in time,
// reap cancels it, and reconcile skips the chat. The session counts for max_awake.
func (m *Manager) oneShot(ctx context.Context, rec state.Record, c *filecall.Call) (files.Answer, error) {
	unlock, err := m.locks.lock(ctx, rec.ID)
	if err != nil {
		return files.Answer{}, err
	}
	defer unlock()
	rec, s, err := m.asleepOr(rec.ID)
	if err != nil {
		return files.Answer{}, err
	}
	if s != nil { // woken while the lock was waited for
		a, err := m.enterTool(ctx, rec, s, c)
		return a, m.overtaken(ctx, s, err)
	}
	done, err := m.shares.Wake(ctx, rec.ID, m.place(rec))
	if err != nil {
		return files.Answer{}, err
	}
	defer done()
	a, err := m.oneShotLocked(ctx, rec, c)
	return a, m.overtaken(ctx, nil, err)
}

// asleepOr returns the chat's session, or nil for a sleeping chat that may have one.
func (m *Manager) asleepOr(id chat.ID) (state.Record, *liveSession, error) {
	rec, err := m.store.Get(id)
	if err != nil {
		return rec, nil, err
	}
	if rec.Phase != chat.Ready {
		return rec, nil, notReady(rec, "use the files of")
	}
	if s := m.session(id); s != nil && s.Init.Alive() {
		return rec, s, nil
	}
	if _, ok := m.opt.Profiles[rec.Profile]; !ok {
		return rec, nil, fmt.Errorf("cannot use the files of chat %s: its profile %s is not configured any more: %w", id, rec.Profile, chat.ErrWrongPhase)
	}
	return rec, nil, nil
}

func (m *Manager) oneShotLocked(ctx context.Context, rec state.Record, c *filecall.Call) (a files.Answer, err error) {
	// As in a wake, nothing is ever started in a cgroup that was killed.
	if err := m.clearSession(ctx, rec); err != nil {
		return a, err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, m.removeLimits(ctx, rec), m.policy.Drop(ctx, rec.ID))
	}()
	if err := m.createLimits(ctx, rec); err != nil {
		return a, err
	}
	var b session.Files
	defer b.Close()
	v, _, err := m.preparedView(rec)
	if err != nil {
		return a, err
	}
	v.PromptFIFO, v.PolicyDir = "", "" // a one-shot session has no shell
	spec := m.spec(rec, v)
	spec.Argv = shims.FileToolArgv()
	cmd := m.starter.Bubblewrap(spec, &b)
	tool, err := c.Start(cmd, &b, func(cmd *exec.Cmd) error { return m.starter.Launch(spec, cmd, &b) })
	if err != nil {
		return a, errors.Join(fmt.Errorf("%w%s", err, b.Complaint()), m.starter.Abandon(rec.ID, rec.UID, nil))
	}
	defer tool.Close()
	inner, err := b.AwaitInit(ctx, session.StartTimeout)
	if err == nil {
		err = m.groups.LimitCPU(rec.ID, m.profile(rec).Limits)
	}
	if err == nil {
		a, err = tool.Speak(ctx, m.toolPlan(rec))
		filecall.Tidy(ctx, err, inner.Ended())
		m.policy.NameRule(ctx, m.chatOf(rec), inner, c, err)
	}
	err = errors.Join(tool.Reason(ctx, err), m.starter.Abandon(rec.ID, rec.UID, inner))
	<-tool.Ended()
	return a, err
}

// clearSession removes the remains of an ended session, if there was one.
func (m *Manager) clearSession(ctx context.Context, rec state.Record) error {
	if _, err := os.Lstat(m.sessionDir(rec.ID, rec.UID).Path()); errors.Is(err, os.ErrNotExist) {
		return m.removeLimits(ctx, rec)
	}
	return m.backwards(ctx, "clear", awakeSteps(), rec)
}
