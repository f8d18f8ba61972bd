package audit

import (
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/state"
)

// RefusedCreate audits a create that was refused before anything was made, and returns why too.
func (t *Trail) RefusedCreate(caller chat.Caller, d Detail, why error) error {
	event := state.Event{Action: "create", Outcome: "denied", Caller: caller, Detail: d}
	return errors.Join(t.store.Audit(event), why)
}

// Refused audits an act that the rule does not admit.
func (t *Trail) Refused(by chat.Caller, rec state.Record, act, rule string, why error) error {
	if !errors.Is(why, chat.ErrDenied) {
		return why
	}
	return errors.Join(t.store.Audit(state.Event{
		Action: act, Outcome: "denied", Caller: by, Chat: rec.ID, UID: rec.UID,
		Detail: map[string]string{"rule": rule, "error": why.Error()},
	}), why)
}

// DeniedRun audits a run that the front or the file rules refused.
func (t *Trail) DeniedRun(ctx context.Context, rec state.Record, argv []string, d *chat.RunDenial) error {
	t.logRefused(rec, chat.ToolExec, d)
	return t.WriteArgv(ctx, rec, "run", "denied", argv, map[string]string{
		"rule": chat.QuotePath(d.Rule), "place": chat.QuotePath(d.Place),
		"command": chat.QuotePath(d.Command), "message": chat.QuotePath(d.Message),
	})
}

// DeniedFile audits a denial with its rule and its source: the rules, which chatd checks, or
// the chat's side, which has walls of its own.
func (t *Trail) DeniedFile(ctx context.Context, rec state.Record, err error) error {
	var d *filewire.Denial
	if !errors.As(err, &d) {
		return nil
	}
	t.logRefused(rec, string(d.Tool), d)
	by := "rules"
	var f *filewire.Failure
	if errors.As(err, &f) {
		by = "the chat's side"
	}
	detail := map[string]string{
		"op": string(d.Op), "path": chat.QuotePath(d.Path), "rule": chat.QuotePath(d.Rule),
		"place": chat.QuotePath(d.Place), "layer": d.Layer, "by": by,
	}
	if d.Errno != "" {
		detail["errno"] = d.Errno
	}
	return t.Write(ctx, rec, string(d.Tool), "denied", detail)
}

// DeniedTool audits a tool that the profile switches off.
func (t *Trail) DeniedTool(ctx context.Context, rec state.Record, action, tool string, err error) error {
	t.logRefused(rec, tool, err)
	return t.Write(ctx, rec, action, "denied", map[string]string{"tool": tool, "rule": "tools_off"})
}

// DeniedTo audits an act of the chat itself that its policy denied. An error is only logged.
func (t *Trail) DeniedTo(ctx context.Context, id chat.ID, action string, d Detail) {
	rec, err := t.store.Get(id)
	if err != nil {
		return // reaped meanwhile
	}
	if err := t.Write(ctx, rec, action, "denied", d); err != nil {
		t.log.Error("cannot audit what was denied", "action", action, "chat", id, "error", err)
	}
}

// logRefused logs a refused tool: log_level warn leaves it out.
func (t *Trail) logRefused(rec state.Record, tool string, err error) {
	t.log.Info("a tool was refused", "tool", tool, "error", err, "chat", rec.ID)
}
