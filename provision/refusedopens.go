package provision

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
)

// The kernel refuses an open by file rules in two ways. A mask mount refuses it without a
// report. For a file that came later the kernel asks the enforcer, which counts its refusals.
// This file writes those counts into the audit log.

const (
	// refusedLook is how often the enforcer is asked; refusedTimeout bounds its answer.
	refusedLook, refusedTimeout = 2 * time.Second, 5 * time.Second
	// Each chat gets refusedBurst lines immediately, and one more every refusedEvery. Further
	// refusals are counted, and become one line every refusedEvery. So no chat fills the log,
	// and none takes another's lines.
	refusedBurst = 20
	refusedEvery = time.Minute
)

// refusedOpens records the recent refusals of opens, by chat. The zero value is ready.
type refusedOpens struct {
	mu    sync.Mutex
	chats map[chat.ID]*refusedOf
}

// refusedOf is a chat's allowance of lines, and its count of refusals without a line.
type refusedOf struct {
	lines  allowance
	unsaid uint64
	summed time.Time // when the last line with a count was written
}

// watchRefused asks the enforcer every refusedLook until ctx ends.
func (m *Manager) watchRefused(ctx context.Context) {
	tick := time.NewTicker(refusedLook)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		if m.anyKept() {
			m.takeRefused(context.WithoutCancel(ctx))
		}
		m.sumRefused(ctx.Err() != nil)
	}
}

// anyKept reports whether some session has rules that the enforcer enforces. Without one it is
// not asked, because it ends once no client asks.
func (m *Manager) anyKept() bool {
	for _, s := range m.allSessions() {
		if rec, err := m.store.Get(s.id); err == nil && enforce.Needed(m.policy(rec), rec.Agent) {
			return true
		}
	}
	return false
}

// takeRefused audits the enforcer's counts since the last call.
func (m *Manager) takeRefused(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refusedTimeout)
	defer cancel()
	m.refused.mu.Lock()
	defer m.refused.mu.Unlock()
	for more := true; more; {
		a, err := enforce.Ask(ctx, filepath.Join(m.keeperDir(), enforce.Socket), enforce.Order{Verb: enforce.Refused})
		if err != nil { // it has ended, which reconcile finds, or is of an older chatd
			m.log.Debug("cannot ask which opens were refused", "error", err)
			return
		}
		for _, r := range a.Refused {
			m.auditRefused(ctx, r)
		}
		more = a.MoreRefused
	}
}

// auditRefused audits the counts of one chat, within its allowance of lines.
func (m *Manager) auditRefused(ctx context.Context, r enforce.Refusals) {
	rec, err := m.store.Get(r.Chat)
	if err != nil {
		return // reaped meanwhile
	}
	c := m.refused.of(r.Chat)
	c.unsaid += r.More
	for _, f := range r.Files {
		if !c.lines.take(refusedBurst, refusedEvery) {
			c.unsaid += f.Times
			continue
		}
		m.auditKernel(ctx, rec, m.refusedFile(rec, f))
	}
}

// of returns the entry of a chat, and makes it if there is none. The caller holds the lock.
func (o *refusedOpens) of(id chat.ID) *refusedOf {
	if o.chats == nil {
		o.chats = map[chat.ID]*refusedOf{}
	}
	if o.chats[id] == nil {
		o.chats[id] = &refusedOf{lines: allowance{refusedBurst, time.Now()}}
	}
	return o.chats[id]
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

// sumRefused audits the number of refusals without a line, for each chat at most once every
// refusedEvery; the last call writes all of them.
func (m *Manager) sumRefused(last bool) {
	m.refused.mu.Lock()
	defer m.refused.mu.Unlock()
	for id, c := range m.refused.chats {
		rec, err := m.store.Get(id)
		c.lines.refill(refusedBurst, refusedEvery)
		switch {
		case err != nil, c.unsaid == 0 && c.lines.left == refusedBurst:
			delete(m.refused.chats, id)
		case c.unsaid > 0 && (last || time.Since(c.summed) >= refusedEvery):
			detail := map[string]string{"more": fmt.Sprint(c.unsaid), "by": "the kernel"}
			c.unsaid, c.summed = 0, time.Now()
			m.auditKernel(context.Background(), rec, detail)
		}
	}
}
