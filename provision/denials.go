package provision

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// What a session's shims denied comes through a fifo, one line of JSON for each: the
// chat's word, which it can leave out or make up. A fifo, because it carries no
// descriptors, holds at most 64 KiB, and says which chat speaks by which one it is.

// heardBurst lines are audited at once, and one more each heardEvery; chatd reads no
// further meanwhile, so that a chat can make it neither work nor write.
const (
	heardBurst = 20
	heardEvery = 5 * time.Second
)

func (m *Manager) denialFIFO(id chat.ID) string { return filepath.Join(m.sessionDir(id), "denials") }

// hear listens to a session's shims until it ends. A session of an older chatd has no
// fifo, and is not heard.
func (m *Manager) hear(s *session) {
	s.deafen = func() {}
	f, err := openFIFO(m.denialFIFO(s.id))
	if err != nil {
		m.log.Debug("not listening to the shims", "chat", s.id, "why", err)
		return
	}
	ctx, deafen := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { _ = f.Close() })
	s.deafen = deafen
	m.done.Go(func() { m.listen(ctx, s.id, f) })
}

// listen audits lines as they come. A line that is cut by a read goes on in the next.
func (m *Manager) listen(ctx context.Context, id chat.ID, f *os.File) {
	buf := make([]byte, shims.MaxShimDenial)
	lines := allowance{heardBurst, time.Now()}
	for have := 0; ; {
		n, err := f.Read(buf[have:])
		if err != nil {
			return
		}
		for have += n; have > 0; {
			line, rest, whole := bytes.Cut(buf[:have], []byte("\n"))
			if !whole && have < len(buf) {
				break
			}
			if !lines.wait(ctx) {
				return
			}
			m.heard(id, line)
			have = copy(buf, rest)
		}
	}
}

// allowance is how many lines may be audited now, and since when none was added.
type allowance struct {
	left int
	at   time.Time
}

// wait takes one from the allowance as soon as there is one; false when ctx ended first.
func (a *allowance) wait(ctx context.Context) bool {
	for {
		if a.take(heardBurst, heardEvery) {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(heardEvery - time.Since(a.at)):
		}
	}
}

// take takes one from the allowance if there is one.
func (a *allowance) take(burst int, every time.Duration) bool {
	if a.refill(burst, every); a.left == 0 {
		return false
	}
	a.left--
	return true
}

// refill adds what time has brought: one line each every, up to a burst.
func (a *allowance) refill(burst int, every time.Duration) {
	if more := int(time.Since(a.at) / every); more > 0 {
		a.left, a.at = min(burst, a.left+more), a.at.Add(time.Duration(more)*every)
	}
}

// heard audits one line.
func (m *Manager) heard(id chat.ID, line []byte) {
	rec, err := m.store.Get(id)
	if err != nil {
		return // reaped meanwhile
	}
	detail := map[string]string{"by": "the chat's word"}
	d, err := shims.ReadShimDenial(line)
	if err != nil {
		detail["unreadable"] = auditText(string(line))
	} else {
		detail["program"], detail["argv"], detail["rule"] = auditText(d.Program), auditText(d.Argv), auditText(d.Rule)
	}
	if err := m.audit(context.Background(), rec, "shim", "denied", detail); err != nil {
		m.log.Error("cannot audit what a shim denied", "chat", id, "error", err)
	}
}

// shimPolicy is what the shims of a chat judge by; nil where it cannot be written
// down, and then they refuse what never runs and nothing else.
func (m *Manager) shimPolicy(rec state.Record) []byte {
	p := m.profile(rec)
	rules, err := m.shimRules(rec)
	if err == nil {
		var b []byte
		b, err = shims.ShimPolicy{Home: m.home(rec.ID), Agent: rec.Agent, Guard: p.Guard, Rules: rules, Network: m.network(p),
			Egress: p.Egress, Resolvers: len(p.Resolvers) > 0}.JSON()
		if err == nil {
			return b
		}
	}
	m.log.Error("the shims judge by no profile", "chat", rec.ID, "error", err)
	return nil
}

// shimRules are the file rules of the chat's agent as a file of rules. Rules that
// chats are told little of are not shown to them: the kernel keeps to those too.
func (m *Manager) shimRules(rec state.Record) (string, error) {
	policy := m.policy(rec)
	if policy.Terse {
		return "", nil
	}
	type rule map[string]any
	sections := map[bool][]rule{true: {}, false: {}}
	for _, r := range policy.Rules(rec.Agent) {
		own := r.Layer == filerules.LayerAgentRules || r.Layer == filerules.LayerAgentDeny
		sections[own] = append(sections[own], rule{string(r.Effect): r.Pattern, "ops": r.Ops.Names()})
	}
	if len(sections[true])+len(sections[false]) == 0 {
		return "", nil
	}
	b, err := json.Marshal(map[string]any{
		"access": map[string]any{"mode": policy.Mode, "useDefaults": false, "rules": sections[false]},
		"agents": map[string]any{cmp.Or(rec.Agent, chat.DefaultAgent): map[string]any{"access": map[string]any{"rules": sections[true]}}},
	})
	if err != nil {
		return "", fmt.Errorf("cannot write the rules of the shims: %w", err)
	}
	return string(b), nil
}
