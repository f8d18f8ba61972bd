package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
)

// The kernel refuses an open by file rules in two ways. A mask mount refuses it without a
// report. For a file that came later the kernel asks the enforcer, which counts its refusals.
// This file writes what package enforcer collects of those into the audit log.

// refusedLook is how often the enforcer is asked.
const refusedLook = 2 * time.Second

// watchRefused asks the enforcer every refusedLook until ctx ends. It does not ask while no session
// needs the enforcer, which ends once no client asks.
func (m *Manager) watchRefused(ctx context.Context) {
	tick := time.NewTicker(refusedLook)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		if m.needsEnforcer() {
			m.takeRefused(context.WithoutCancel(ctx))
		}
		m.sumRefused(ctx.Err() != nil)
	}
}

// takeRefused audits what the enforcer has counted since the last call.
func (m *Manager) takeRefused(ctx context.Context) {
	m.enforcer.TakeRefused(ctx, func(id chat.ID, f enforce.RefusedFile) {
		if rec, err := m.store.Get(id); err == nil { // otherwise it was reaped meanwhile
			m.auditKernel(ctx, rec, m.refusedFile(rec, f))
		}
	})
}

// sumRefused audits the number of refusals without a line; the last call writes all of them.
func (m *Manager) sumRefused(last bool) {
	m.enforcer.SumRefused(last, func(id chat.ID, more uint64) {
		if rec, err := m.store.Get(id); err == nil {
			detail := map[string]string{"more": fmt.Sprint(more), "by": "the kernel"}
			m.auditKernel(context.Background(), rec, detail)
		}
	})
}

// refusedFile returns the audit detail of one refused file, with the rule that closes it now.
func (m *Manager) refusedFile(rec state.Record, f enforce.RefusedFile) map[string]string {
	detail := map[string]string{"path": auditText(string(f.Path)), "times": fmt.Sprint(f.Times), "by": "the kernel"}
	if string(f.By) != string(f.Path) && len(f.By) > 0 {
		detail["name"] = auditText(string(f.By)) // a name that it had, or would have
	}
	rules, err := m.rules(rec)
	if err != nil {
		detail["error"] = err.Error()
		return detail
	}
	if h := rules.ClassOf(string(f.By)); len(f.By) > 0 && h.Class != filerules.Open {
		detail["rule"], detail["place"], detail["layer"] = auditText(h.Why.Rule.String()), auditText(h.Why.Rule.Place), string(h.Why.Layer)
	} else {
		detail["rule"] = "one about a name that it had"
	}
	return detail
}

// auditKernel audits opens that the kernel refused. An error is only logged.
func (m *Manager) auditKernel(ctx context.Context, rec state.Record, detail map[string]string) {
	if err := m.audit(ctx, rec, "open", "denied", detail); err != nil {
		m.log.Error("cannot audit which opens the kernel refused", "chat", rec.ID, "error", err)
	}
}
