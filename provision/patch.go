package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// Patch changes the labels of a chat, and where it may connect. For labels alone it takes no lock
// of the chat: nothing here acts on them.
func (m *Manager) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	if err := p.Validate(); err != nil {
		return chat.Chat{}, err
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	if p.ChangesEgress() {
		err = m.patchEgress(ctx, rec.ID, p)
	} else {
		err = m.store.Patch(id, p, m.event(ctx, rec, "patch", "done", patchDetail(p)))
	}
	if err != nil {
		return chat.Chat{}, err
	}
	return m.Get(ctx, id)
}

// patchEgress changes where a chat may connect, also in its session. When it returns, connections
// to what was taken away have ended.
func (m *Manager) patchEgress(ctx context.Context, id chat.ID, p chat.Patch) error {
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := m.store.Get(id)
	if err != nil {
		return err
	}
	change := p.ApplyEgress(rec.EgressChange())
	if err := m.policy.Profile(rec.Profile).CheckEgress(change); err != nil {
		return m.refusedEgress(chat.CallerFrom(ctx), rec, "patch", err)
	}
	detail := patchDetail(p)
	detail["egress_add"], detail["egress_remove"] = fmt.Sprint(change.Add), fmt.Sprint(change.Remove)
	if err := m.store.Patch(id, p, m.event(ctx, rec, "patch", "intent",
		maps.Clone(detail))); err != nil {
		return err
	}
	rec, err = m.store.Get(id)
	if err != nil {
		return err
	}
	err = m.moveEgress(context.WithoutCancel(ctx), rec)
	return m.auditOutcome(ctx, rec, "patch", detail, err)
}

// moveEgress brings what keeps a chat's egress to its record. The caller holds the chat's lock.
func (m *Manager) moveEgress(ctx context.Context, rec state.Record) error {
	err := m.gateway.Change(ctx, rec.ID, m.profile(rec).Egress)
	if !m.isWalled(rec) && !m.without(chat.LayerEgress) {
		err = errors.Join(err, m.applyWall(ctx))
	}
	if s := m.session(rec.ID); s.lives() {
		err = errors.Join(err, m.sessionDir(rec.ID, rec.UID).WritePolicy(m.shimPolicy(rec)))
	}
	return err
}

// refusedEgress audits a change of egress that the profile does not admit.
func (m *Manager) refusedEgress(by chat.Caller, rec state.Record, act string, why error) error {
	if !errors.Is(why, chat.ErrDenied) {
		return why
	}
	return errors.Join(m.store.Audit(state.Event{
		Action: act, Outcome: "denied", Caller: by, Chat: rec.ID, UID: rec.UID,
		Detail: map[string]string{"rule": "egress_may_add", "error": why.Error()},
	}), why)
}

// patchDetail returns the audit log's detail of a change: the names of the labels, without their
// values.
func patchDetail(p chat.Patch) map[string]string {
	d := map[string]string{}
	if p.NoLabels {
		d["labels"] = "removed"
	}
	for name, v := range p.Labels {
		d["label."+name] = "set"
		if v == nil {
			d["label."+name] = "removed"
		}
	}
	return d
}
