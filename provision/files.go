package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/provision/view"
	"github.com/chatd/chatd/state"
)

// FileTool is one of the five tools in the chat, with which talk speaks. The chat may be asleep,
// and is not woken.
func (m *Manager) FileTool(ctx context.Context, id chat.ID, u filewire.Use, talk filewire.Talk) error {
	c, err := filecall.New(u, talk)
	if err != nil {
		return err
	}
	return m.fileTool(ctx, id, c)
}

// defaultFileMax is the bound in bytes that FileMax 0 means.
const defaultFileMax = 1 << 30

// fileTool does one call. It checks the caller's name against the rules before it starts the tool,
// which checks the names that links lead to.
func (m *Manager) fileTool(ctx context.Context, id chat.ID, c *filecall.Call) error {
	rec, err := m.reach(ctx, id)
	if err == nil && m.frozen(rec.ID) == chat.FrozenUntilThawed {
		err = heldError(rec.ID)
	}
	if err == nil {
		err = m.allowFirst(ctx, rec, c)
	}
	if err != nil {
		return err
	}
	detail := map[string]string{"path": chat.QuotePath(c.Path)}
	if c.Writes() {
		if err := m.audit(ctx, rec, string(c.Tool), "intent", detail); err != nil {
			return err
		}
	}
	a, err := m.callTool(ctx, rec, c)
	m.touch(rec)
	auditErr := m.auditTool(ctx, rec, c, a, err)
	return errors.Join(m.policy.Redact(ctx, rec.Profile, err), auditErr)
}

// allowFirst checks the tool and the caller's name, and gives the call its rules.
func (m *Manager) allowFirst(ctx context.Context, rec state.Record, c *filecall.Call) error {
	if err := m.switchedOff(ctx, rec, string(c.Tool), string(c.Tool)); err != nil {
		return err
	}
	d, err := m.policy.Admit(ctx, m.chatOf(rec), m.inside(ctx, rec).Init(), c)
	if d == nil {
		return err
	}
	auditErr := m.auditDenial(ctx, rec, d)
	return errors.Join(m.policy.Redact(ctx, rec.Profile, d), auditErr)
}

// auditTool audits the end of a call: every denial, and every write.
func (m *Manager) auditTool(ctx context.Context, rec state.Record, c *filecall.Call, a filewire.Answer, err error) error {
	var d *filewire.Denial
	if errors.As(err, &d) {
		return m.auditDenial(ctx, rec, err)
	}
	if !c.Writes() {
		return nil
	}
	detail := map[string]string{"path": chat.QuotePath(c.Path)}
	if err == nil {
		detail["file"], detail["size"] = chat.QuotePath(a.Path), fmt.Sprint(a.Size)
	}
	return m.auditEnd(ctx, rec, string(c.Tool), detail, err)
}

// auditDenial audits a denial with its rule and its source: the rules, which chatd checks, or
// the chat's side, which has walls of its own.
func (m *Manager) auditDenial(ctx context.Context, rec state.Record, err error) error {
	var d *filewire.Denial
	if !errors.As(err, &d) {
		return nil
	}
	m.logRefused(rec, string(d.Tool), d)
	by := "rules"
	var f *filewire.Failure
	if errors.As(err, &f) {
		by = "the chat's side"
	}
	detail := map[string]string{
		"op": string(d.Op), "path": chat.QuotePath(d.Path), "rule": chat.QuotePath(d.Rule), "place": chat.QuotePath(d.Place), "layer": d.Layer, "by": by,
	}
	if d.Errno != "" {
		detail["errno"] = d.Errno
	}
	return m.audit(ctx, rec, string(d.Tool), "denied", detail)
}

// toolGrants returns the paths that a chat's tools may use: its home, its /tmp, and the profile's
// grants, as far as the view shows them.
func (m *Manager) toolGrants(rec state.Record) plan.FileTool {
	may := view.FileTool(m.profile(rec), m.home(rec.ID))
	may.MaxBytes = cmp.Or(m.opt.FileMax, defaultFileMax)
	return may
}
