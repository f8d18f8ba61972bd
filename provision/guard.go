package provision

import (
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// The front parses commands: it checks them against the guard of the profile, whose terms it
// asks for, and finds the paths that they name. chatd-root checks those paths against the file
// rules, and audits a refusal, before the run starts. Text that is typed into a terminal is not
// checked.

// Terms returns the terms by which the front checks the commands of a chat.
func (m *Manager) Terms(ctx context.Context, id chat.ID) (chat.Terms, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Terms{}, err
	}
	p := m.profile(rec)
	t, may := chat.NewTerms(m.home(id), p.CheckTool(chat.ToolExec) != nil, p.Guard), m.toolGrants(rec)
	t.ReadOutside, t.AllowRead, t.AllowWrite = may.ReadOutside, may.AllowRead, may.AllowWrite
	return t, nil
}

// RefuseRun audits the front's refusal of a run of the caller.
func (m *Manager) RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return err
	}
	return m.auditDenied(ctx, rec, r.Argv, &r.Denial)
}

func (m *Manager) auditDenied(ctx context.Context, rec state.Record, argv []string, d *chat.RunDenial) error {
	m.logRefused(rec, chat.ToolExec, d)
	return m.auditArgv(ctx, rec, "run", "denied", argv, map[string]string{
		"rule": chat.QuotePath(d.Rule), "place": chat.QuotePath(d.Place), "command": chat.QuotePath(d.Command), "message": chat.QuotePath(d.Message),
	})
}

// logRefused logs a refused tool: log_level warn leaves it out.
func (m *Manager) logRefused(rec state.Record, tool string, err error) {
	m.log.Info("a tool was refused", "tool", tool, "error", err, "chat", rec.ID)
}

// checkRun refuses, and audits, a run that the profile has switched off or whose paths the file
// rules deny. Its error is then a [chat.ErrDenied].
func (m *Manager) checkRun(ctx context.Context, rec state.Record, spec chat.RunSpec) error {
	if err := m.switchedOff(ctx, rec, chat.ToolExec, "run"); err != nil {
		return err
	}
	denial, err := m.policy.CheckRun(ctx, m.chatOf(rec), spec)
	if err != nil || denial == nil {
		return err
	}
	return errors.Join(denial, m.auditDenied(ctx, rec, spec.CommandLine(), denial))
}

// switchedOff refuses, with an audited [chat.ErrDenied], a tool that the profile switches off.
func (m *Manager) switchedOff(ctx context.Context, rec state.Record, tool, action string) error {
	err := m.profile(rec).CheckTool(tool)
	if err == nil {
		return nil
	}
	m.logRefused(rec, tool, err)
	return errors.Join(err, m.audit(ctx, rec, action, "denied", map[string]string{"tool": tool, "rule": "tools_off"}))
}
