package provision

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/provision/policy"
)

// call does a call beside the chat's session, whether it has one or not: in a view, a cgroup
// and a pid namespace of the tool's own. Reap cancels the call and waits for it.
func (rs *runner) call(ctx context.Context, rec subject, c *filecall.Call) (a filewire.Answer, err error) {
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	if err := rs.starts.MayBegin(ctx); err != nil {
		return a, err
	}
	ctx, done, err := rs.calls.Begin(ctx, rec.ID)
	if err != nil {
		return a, err
	}
	defer done()
	rec, leave, err := rs.awakeOrHeld(ctx, rec.ID)
	if err != nil {
		return a, err
	}
	defer leave()
	may, err := rs.mounts.toolPlan(rec)
	if err != nil {
		return a, err
	}
	p, err := c.Start(rs.dirs.shim, rs.dirs.units)
	if err != nil {
		return a, fmt.Errorf("%w: %w", err, chat.ErrBusy)
	}
	defer p.Close()
	defer rs.groups.Unbound(cgroup.Tools(rec.ID))
	defer p.End()
	if err = rs.bound(rec.ID, p.PID()); err == nil {
		a, err = p.Speak(ctx, may)
	}
	filecall.Tidy(ctx, err, p.Ended())
	return a, p.Reason(ctx, err)
}

// bound moves a tool to the cgroup of the chat's tools, which another one's end may take away
// meanwhile. A host that has no place for it bounds the front neither.
func (rs *runner) bound(id chat.ID, pid int) (err error) {
	for range 10 {
		if err = rs.groups.Bound(cgroup.Tools(id), pid); !errors.Is(err, chat.ErrNotFound) {
			break
		}
	}
	if errors.Is(err, chat.ErrUnsupported) {
		return nil
	}
	return err
}

// awakeOrHeld returns the chat as it is now. A tool of a sleeping chat counts for max_awake and holds
// the chat's lock until leave: a wake waits for it.
func (rs *runner) awakeOrHeld(ctx context.Context, id chat.ID) (rec subject, leave func(), err error) {
	rec, s, err := rs.asleepOr(id)
	if err != nil || s != nil {
		return rec, func() {}, err
	}
	unlock, err := rs.chats.locks.Lock(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	rec, s, err = rs.asleepOr(id)
	done := func() {}
	if err == nil && s == nil { // not woken while the lock was waited for
		done, err = rs.shares.Wake(ctx, id, rec.place())
	}
	if err != nil || s != nil {
		unlock()
		return rec, func() {}, err
	}
	return rec, func() { done(); unlock() }, nil
}

// asleepOr returns the chat's session, or nil for a sleeping chat that may have one.
func (rs *runner) asleepOr(id chat.ID) (subject, *liveSession, error) {
	rec, err := rs.chats.get(id)
	if err != nil {
		return rec, nil, err
	}
	if rec.Phase != chat.Ready {
		return rec, nil, notReady(rec, "use the files of")
	}
	if s := rs.chats.session(id); s.lives() {
		return rec, s, nil
	}
	return rec, nil, rs.chats.configured(rec, "use the files of")
}

// clear removes the remains of an ended session, if there was one.
func (ss *sessions) clear(ctx context.Context, rec subject) error {
	dir := ss.dirs.sessionDir(rec.ID, rec.UID).Path()
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return ss.removeLimits(ctx, rec)
	}
	return ss.awakeSteps().backwards(ctx, ss.log, "clear", rec)
}

// FileTool is one of the five tools in the chat, with which talk speaks. The chat may be asleep,
// and is not woken.
func (rs *runner) FileTool(ctx context.Context, id chat.ID, u filewire.Use, talk filewire.Talk) error {
	c, err := filecall.New(u, talk)
	if err != nil {
		return err
	}
	rec, err := rs.chats.reach(ctx, id)
	if err == nil && rs.groups.frozen(rec.ID) == chat.FrozenUntilThawed {
		err = heldError(rec.ID)
	}
	if err == nil {
		err = rs.allowFirst(ctx, rec, c)
	}
	if err != nil {
		return err
	}
	detail := map[string]string{"path": chat.QuotePath(c.Path)}
	if c.Writes() {
		if err := rs.trail.Write(ctx, rec.Record, string(c.Tool), "intent", detail); err != nil {
			return err
		}
	}
	a, err := rs.call(ctx, rec, c)
	rs.chats.touch(rec.ID)
	auditErr := rs.auditEnd(ctx, rec, c, a, err)
	return errors.Join(rs.policy.Redact(ctx, rec.Profile, err), auditErr)
}

// allowFirst checks the tool and the caller's name, and gives the call its rules.
func (rs *runner) allowFirst(ctx context.Context, rec subject, c *filecall.Call) error {
	if err := rs.switchedOff(ctx, rec, string(c.Tool), string(c.Tool)); err != nil {
		return err
	}
	d, err := rs.policy.Admit(ctx, rec.rules(), rs.inside(ctx, rec).Init(), c)
	if d == nil {
		return err
	}
	auditErr := rs.trail.DeniedFile(ctx, rec.Record, d)
	return errors.Join(rs.policy.Redact(ctx, rec.Profile, d), auditErr)
}

// auditEnd audits the end of a call: every denial, and every write.
func (rs *runner) auditEnd(
	ctx context.Context, rec subject, c *filecall.Call, a filewire.Answer, err error,
) error {
	var d *filewire.Denial
	if errors.As(err, &d) {
		return rs.trail.DeniedFile(ctx, rec.Record, err)
	}
	if !c.Writes() {
		return nil
	}
	detail := map[string]string{"path": chat.QuotePath(c.Path)}
	if err == nil {
		detail["file"], detail["size"] = chat.QuotePath(a.Path), fmt.Sprint(a.Size)
	}
	return rs.trail.End(ctx, rec.Record, string(c.Tool), detail, err)
}

// Terms returns the terms by which the front checks the commands of a chat.
func (rs *runner) Terms(ctx context.Context, id chat.ID) (chat.Terms, error) {
	rec, err := rs.chats.reach(ctx, id)
	if err != nil {
		return chat.Terms{}, err
	}
	p, may := rec.profile, rs.mounts.toolGrants(rec)
	return chat.Terms{Home: rec.home, ExecOff: p.CheckTool(chat.ToolExec) != nil,
		Guard: p.Guard, Places: p.Guard.Places(),
		ReadOutside: may.ReadOutside, AllowRead: may.AllowRead, AllowWrite: may.AllowWrite}, nil
}

// RefuseRun audits the front's refusal of a run of the caller.
func (rs *runner) RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error {
	rec, err := rs.chats.reach(ctx, id)
	if err != nil {
		return err
	}
	return rs.trail.DeniedRun(ctx, rec.Record, r.Argv, &r.Denial)
}

// inside is what only the chat's session can tell of its rules.
func (rs *runner) inside(ctx context.Context, rec subject) policy.Inside {
	return policy.Inside{
		Resolve: func(names []string) (real map[string]filewire.Link, err error) {
			_, err = rs.call(ctx, rec, filecall.NewResolve(names, &real))
			return real, err
		},
		Closed: func() (masked, leftOut []string) { return rs.mounts.closedBy(rec) },
		Init: func() *sys.ProcessHandle {
			if s := rs.chats.session(rec.ID); s != nil {
				return s.Init
			}
			return nil
		},
	}
}
