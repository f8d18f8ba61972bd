package provision

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/verdict"
)

// The kernel answers EACCES, EPERM or EROFS and names no rule. Mostly there is none, but a mode,
// an owner or a mount. This file finds out whether it was a rule that the kernel enforces.

// keptRule returns the denial by which the kernel refuses an operation on an absolute name in the
// chat, with its rule, or the zero Verdict. If another name of the file causes the refusal, only
// the enforcer knows, while the session of l lives; l may be nil.
func (m *Manager) keptRule(ctx context.Context, rec state.Record, l *sys.HeldProcess, name string, changes bool) filerules.Verdict {
	rules, err := m.rules(rec)
	if err != nil || !enforce.Needed(rules.Policy(), rec.Agent) {
		return filerules.Verdict{}
	}
	if v := rules.ByKernel(name, changes); v.Denied() || l == nil {
		return v
	}
	by, err := m.enforcer.Why(ctx, sessionOf(rec, l), name)
	if err != nil || by == "" {
		return filerules.Verdict{}
	}
	return rules.ByKernel(by, changes)
}

// initOf is the init process of a chat's session, or nil while the chat is asleep.
func (m *Manager) initOf(id chat.ID) *sys.HeldProcess {
	if s := m.session(id); s != nil {
		return s.init
	}
	return nil
}

// explainKept returns the verdict for a path whose own name the rules allow: the kernel may
// still refuse it, because of another name.
func (m *Manager) explainKept(ctx context.Context, rec state.Record, q chat.Question, v filerules.Verdict, links verdict.Links) filerules.Verdict {
	if q.Path == "" || v.Denied() {
		return v
	}
	home := m.home(rec.ID)
	name := links.Resolve(filerules.Fold(home, home, q.Path))
	if kept := m.keptRule(ctx, rec, m.initOf(rec.ID), name, q.Op == "write" || q.Op == "edit"); kept.Denied() {
		return kept
	}
	return v
}

// nameRule adds the rule to the kernel's denial of a file tool, if a rule caused it. It uses the
// name of the caller's request, not a name that the chat reports.
func (m *Manager) nameRule(ctx context.Context, rec state.Record, c *fileCall, l *sys.HeldProcess, err error) {
	var d *files.Denial
	if !errors.As(err, &d) || d.Rule != files.RuleKernel {
		return
	}
	name := m.folded(rec.ID, c.path)
	if v := m.keptRule(ctx, rec, l, name, c.writes()); v.Denied() {
		d.Rule, d.Place, d.Errno = v.Rule.String(), v.Rule.Place, d.Place
		d.Message = m.policy(rec).Message(name)
	}
}

// notEntered returns err for a run that did not start. If a rule closes its directory, the audit
// log and operators get the rule; other callers get the message of a denied path.
func (m *Manager) notEntered(ctx context.Context, rec state.Record, spec chat.RunSpec, detail map[string]string, err error) error {
	if !errors.Is(err, errNotConfined) {
		return err
	}
	dir := spec.Dir(m.home(rec.ID))
	if r := m.ruleBehind(ctx, rec, dir); r != nil {
		detail["rule"], detail["place"] = auditText(r.String()), auditText(r.Place)
		said := m.policy(rec).Message(dir)
		if chat.CallerFrom(ctx).Role == chat.RoleOperator {
			said = fmt.Sprintf("the file rules close it: %s (%s)", r, r.Place)
		}
		err = fmt.Errorf("%w: %s", err, said)
	}
	return fmt.Errorf("%w: %w", err, chat.ErrInvalid)
}

// ruleBehind returns the rule that closes a name, or the target of the chat's links there.
func (m *Manager) ruleBehind(ctx context.Context, rec state.Record, name string) *filerules.Rule {
	if v := m.keptRule(ctx, rec, m.initOf(rec.ID), path.Clean(name), false); v.Denied() || !enforce.Needed(m.policy(rec), rec.Agent) {
		return v.Rule
	}
	real, err := m.resolve(ctx, rec, []string{name})
	if err != nil || real[name] == "" {
		return nil
	}
	return m.keptRule(ctx, rec, m.initOf(rec.ID), real[name], false).Rule
}
