package provision

import (
	"context"
	"errors"
	"maps"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

func (m *Manager) event(ctx context.Context, rec state.Record, action, outcome string, detail map[string]string) state.Event {
	detail = withSchedule(ctx, detail)
	return state.Event{Action: action, Outcome: outcome, Chat: rec.ID, UID: rec.UID, Caller: chat.CallerFrom(ctx), Detail: detail}
}

// audit writes one event. An act whose intent cannot be audited is not done.
func (m *Manager) audit(ctx context.Context, rec state.Record, action, outcome string, detail map[string]string) error {
	err := m.store.Audit(m.event(ctx, rec, action, outcome, detail))
	if errors.Is(err, state.ErrReadOnly) && action == "sleep" {
		// A chat must be stoppable even when the audit log is read-only: the daemon's log gets the
		// event.
		m.log.Warn("not in the audit log", "why", err, "action", action, "outcome", outcome, "chat", rec.ID, "by", chat.CallerFrom(ctx).Name, "detail", detail)
		return nil
	}
	return err
}

// auditArgv is audit for an act with a command line.
func (m *Manager) auditArgv(ctx context.Context, rec state.Record, action, outcome string, argv []string, detail map[string]string) error {
	e := m.event(ctx, rec, action, outcome, detail)
	e.Argv = argv
	return m.store.Audit(e)
}

// auditOutcome audits the end of an act: done, or failed with err. It returns err too, so that a
// caller cannot lose it.
func (m *Manager) auditOutcome(ctx context.Context, rec state.Record, action string, detail map[string]string, err error) error {
	return errors.Join(err, m.auditEnd(ctx, rec, action, detail, err))
}

// auditEnd is auditOutcome for those that do not return err, or not as it is.
func (m *Manager) auditEnd(
	ctx context.Context, rec state.Record, action string, detail map[string]string, err error,
) error {
	outcome, d := "done", map[string]string{}
	maps.Copy(d, detail)
	if err != nil {
		outcome = "failed"
		d["error"] = err.Error()
		if chat.KindOf(err) == nil && !errors.Is(err, context.Canceled) { // or it is the caller's affair
			m.remember(chat.Failure{Action: action, Chat: rec.ID, By: chat.CallerFrom(ctx).Name, Error: err.Error()})
		}
	}
	return m.audit(ctx, rec, action, outcome, d)
}

// audited audits what act does before and after.
func (m *Manager) audited(
	ctx context.Context, rec state.Record, action string, detail map[string]string, act func() error,
) error {
	if err := m.audit(ctx, rec, action, "intent", detail); err != nil {
		return err
	}
	return m.auditOutcome(ctx, rec, action, detail, act())
}

// setFinding records what reconcile could not mend, by its subject. doctor shows the finding
// until clearFinding removes it.
func (m *Manager) setFinding(about string, err error) {
	m.log.Error("cannot put right", "about", about, "error", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.findings[about] = err.Error()
}

// clearFinding removes the finding about a subject that was mended.
func (m *Manager) clearFinding(about string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.findings, about)
}
