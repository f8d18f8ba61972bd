package provision

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/state"
)

// callTool does a call beside the chat's session, whether it has one or not: in a view, a cgroup
// and a pid namespace of the tool's own. Reap cancels the call and waits for it.
func (m *Manager) callTool(ctx context.Context, rec state.Record, c *filecall.Call) (a filewire.Answer, err error) {
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	if err := m.mayBegin(ctx); err != nil {
		return a, err
	}
	ctx, done, err := m.calls.Begin(ctx, rec.ID)
	if err != nil {
		return a, err
	}
	defer done()
	rec, leave, err := m.admitTool(ctx, rec.ID)
	if err != nil {
		return a, err
	}
	defer leave()
	may, err := m.toolPlan(rec)
	if err != nil {
		return a, err
	}
	p, err := c.Start(m.paths.shim, m.units)
	if err != nil {
		return a, fmt.Errorf("%w: %w", err, chat.ErrBusy)
	}
	defer p.Close()
	defer m.groups.Unbound(cgroup.Tools(rec.ID))
	defer p.End()
	if err = m.boundTool(rec.ID, p.PID()); err == nil {
		a, err = p.Speak(ctx, may)
	}
	filecall.Tidy(ctx, err, p.Ended())
	return a, p.Reason(ctx, err)
}

// boundTool moves a tool to the cgroup of the chat's tools, which another one's end may take away
// meanwhile. A host that has no place for it bounds the front neither.
func (m *Manager) boundTool(id chat.ID, pid int) (err error) {
	for range 10 {
		err = m.groups.Bound(cgroup.Tools(id), pid)
		if !errors.Is(err, chat.ErrNotFound) {
			break
		}
	}
	if errors.Is(err, chat.ErrUnsupported) {
		return nil
	}
	return err
}

// admitTool returns the chat as it is now. A tool of a sleeping chat counts for max_awake and holds
// the chat's lock until leave: a wake waits for it.
func (m *Manager) admitTool(ctx context.Context, id chat.ID) (rec state.Record, leave func(), err error) {
	rec, s, err := m.asleepOr(id)
	if err != nil || s != nil {
		return rec, func() {}, err
	}
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	rec, s, err = m.asleepOr(id)
	done := func() {}
	if err == nil && s == nil { // not woken while the lock was waited for
		done, err = m.shares.Wake(ctx, id, m.place(rec))
	}
	if err != nil || s != nil {
		unlock()
		return rec, func() {}, err
	}
	return rec, func() { done(); unlock() }, nil
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
	if s := m.session(id); s.lives() {
		return rec, s, nil
	}
	if _, ok := m.opt.Profiles[rec.Profile]; !ok {
		return rec, nil, fmt.Errorf("cannot use the files of chat %s: its profile %s is not "+
			"configured any more: %w", id, rec.Profile, chat.ErrWrongPhase)
	}
	return rec, nil, nil
}

// toolPlan returns what a tool of the chat sees, and the paths that it may use there: its home, its
// temporary directories, and what its session sees of the host or, without one, would see. A tool
// also sees what matches an expression of the profile only since the session began.
func (m *Manager) toolPlan(rec state.Record) (may plan.FileTool, err error) {
	c := m.viewer(rec)
	trees := []chat.Exposed{
		{Source: c.Home, Target: c.Home}, {Source: c.Tmp, Target: "/tmp"},
		{Source: c.VarTmp, Target: "/var/tmp"},
	}
	if m.without(chat.LayerTmp) {
		trees[1].Source, trees[2].Source = "/tmp", "/var/tmp"
	}
	var has []chat.Exposed
	if s := m.session(rec.ID); s.lives() {
		has = append([]chat.Exposed{}, s.Exposed...)
	}
	exposed, err := m.views.ForTools(c, has)
	may = m.toolGrants(rec)
	may.Confine = &plan.ToolView{
		UID: rec.UID, Limits: m.processLimits(rec), Trees: append(trees, exposed...),
	}
	return may, err
}

// clearSession removes the remains of an ended session, if there was one.
func (m *Manager) clearSession(ctx context.Context, rec state.Record) error {
	dir := m.sessionDir(rec.ID, rec.UID).Path()
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return m.removeLimits(ctx, rec)
	}
	return m.backwards(ctx, "clear", awakeSteps(), rec)
}
