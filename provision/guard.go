package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/access"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/guard"
	"github.com/chatd/chatd/shell"
	"github.com/chatd/chatd/state"
)

// judging bounds how many commands are judged at once: reading one takes up to 70 MB
// for a moment (shell.Calls).
var judging = make(chan struct{}, 4)

// judgeTurn waits until a command may be judged; leave lets the next one.
func judgeTurn(ctx context.Context) (leave func(), err error) {
	select {
	case judging <- struct{}{}:
		return func() { <-judging }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot judge the command: %w", context.Cause(ctx))
	}
}

// judgeRun is a [chat.ErrDenied] for a run that the profile has switched off or that
// its guard refuses. Every way in comes through here: nothing of a chat was started
// yet, and the denial is audited. What is typed into a terminal is not judged.
func (m *Manager) judgeRun(ctx context.Context, rec state.Record, spec chat.RunSpec) error {
	if err := m.switchedOff(ctx, rec, chat.ToolExec, "run"); err != nil {
		return err
	}
	v, err := m.judge(ctx, rec, spec)
	if err != nil || !v.Denied {
		return err
	}
	return errors.Join(v.Err(), m.auditArgv(ctx, rec, "run", "denied", runArgv(spec), map[string]string{
		"rule": auditText(v.Rule), "place": v.Place, "command": auditText(v.Command), "message": v.Message,
	}))
}

// switchedOff is a [chat.ErrDenied], audited, for a tool that the profile has off.
func (m *Manager) switchedOff(ctx context.Context, rec state.Record, tool, action string) error {
	err := m.profile(rec).CheckTool(tool)
	if err == nil {
		return nil
	}
	return errors.Join(err, m.audit(ctx, rec, action, "denied", map[string]string{"tool": tool, "rule": "tools_off"}))
}

func (m *Manager) judge(ctx context.Context, rec state.Record, spec chat.RunSpec) (guard.Verdict, error) {
	leave, err := judgeTurn(ctx)
	if err != nil {
		return guard.Verdict{}, err
	}
	defer leave()
	home := m.home(rec.ID)
	at := guard.Place{Home: home, Cwd: spec.Dir(home)}
	j, ok := m.judgedBy(rec)
	if !ok {
		return guard.Verdict{}, nil
	}
	var v guard.Verdict
	if spec.Command != "" {
		v, err = j.guard.Command(spec.Command, at)
	} else {
		v, err = j.guard.Argv(spec.Argv, at)
	}
	if err != nil || v.Denied || !j.keys.On() {
		return v, err
	}
	return m.judgePaths(rec, spec)
}

// judgePaths holds the paths of a command against the file rules for bash. Links are
// not followed here, and what cannot be judged runs: the kernel keeps to the rules.
func (m *Manager) judgePaths(rec state.Record, spec chat.RunSpec) (guard.Verdict, error) {
	rules, err := m.rules(rec)
	if err != nil || len(rules.Rules()) == 0 {
		return guard.Verdict{}, err
	}
	var v access.Verdict
	if spec.Command != "" {
		v, err = shell.JudgeCommandIn(rules.Ruleset, spec.Dir(m.home(rec.ID)), spec.Command)
	} else {
		v, err = shell.JudgeArgvIn(rules.Ruleset, spec.Dir(m.home(rec.ID)), spec.Argv)
	}
	if err != nil || !v.Denied() {
		return guard.Verdict{}, nil
	}
	return guard.Verdict{Denied: true, Rule: v.Rule.String(), Place: v.Rule.Place, Message: rules.Policy().Message(v.Name), Command: v.Name,
		Reason: "the file rules deny it", Instead: "use another path, or ask an operator", Vague: rules.Policy().Vague}, nil
}

// withGuard adds what the guard says of a command to what the file rules say.
func (m *Manager) withGuard(ctx context.Context, rec state.Record, q chat.Question, e chat.Explained, err error) (chat.Explained, error) {
	home := m.home(rec.ID)
	j, ok := m.judgedBy(rec)
	if q.Command == "" || !ok || err != nil {
		return e, err
	}
	leave, err := judgeTurn(ctx)
	if err != nil {
		return e, err
	}
	defer leave()
	v, err := j.guard.Command(q.Command, guard.Place{Home: home, Cwd: home})
	if err == nil {
		e.Guard = v.Explained()
	}
	return e, err
}
