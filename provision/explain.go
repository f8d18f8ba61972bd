package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// Explain answers whether the chat's file rules allow an operation, or its egress a destination,
// and which rule or entry decides. A listed name of an awake chat is looked up too. Links are followed in the chat, as the chat: root follows none.
func (m *Manager) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	if err := q.Validate(); err != nil {
		return chat.Explained{}, err
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Explained{}, err
	}
	e, err := m.policy.Explain(ctx, m.chatOf(rec), q, m.inside(ctx, rec))
	if err != nil || q.Host == "" || q.Destination().Name() == "" || e.Rule == "" {
		return e, err
	}
	if why := m.gateway.Resolve(ctx, rec.ID, q.Destination()); why != nil {
		e.Why += "; nothing is reached now: " + chat.EgressText(why.Error())
	}
	return e, nil
}

// inside is what only the chat's session can tell of its rules.
func (m *Manager) inside(ctx context.Context, rec state.Record) policy.Inside {
	return policy.Inside{
		Resolve: func(names []string) (real map[string]filewire.Link, err error) {
			_, err = m.callTool(ctx, rec, filecall.NewResolve(names, &real))
			return real, err
		},
		Closed: func() (masked, leftOut []string) { return m.closedBy(rec) },
		Init: func() *sys.HeldProcess {
			if s := m.session(rec.ID); s != nil {
				return s.Init
			}
			return nil
		},
	}
}

// closedBy returns the denied paths that bubblewrap masks in the chat's session, and those to
// which Landlock grants nothing. For a sleeping chat they are those of its next session, found by
// one look at the host.
func (m *Manager) closedBy(rec state.Record) (masked, leftOut []string) {
	if s := m.session(rec.ID); s != nil {
		return policy.Masked(s.Session), policy.LeftOut(m.sessionView(rec, s))
	}
	if len(m.policy.Closed(m.chatOf(rec))) == 0 {
		return nil, nil
	}
	v, _, err := m.exposedView(rec)
	if err != nil {
		v.Masked = nil // a wake reports the error
	}
	return targets(v.Masked), policy.LeftOut(v)
}

func targets(list []chat.Exposed) (all []string) {
	for _, e := range list {
		all = append(all, e.Target)
	}
	return all
}

// notEntered returns err for a run that did not start. If a rule closes its directory, the audit
// log and operators get the rule; other callers get the message of a denied path.
func (m *Manager) notEntered(ctx context.Context, rec state.Record, spec chat.RunSpec, detail map[string]string, err error) error {
	if !errors.Is(err, session.ErrNotConfined) {
		return err
	}
	dir := spec.Dir(m.home(rec.ID))
	r := m.policy.RuleBehind(ctx, m.chatOf(rec), dir, m.inside(ctx, rec))
	if rules, rerr := m.policy.Rules(m.chatOf(rec)); r != nil && rerr == nil {
		detail["rule"], detail["place"] = chat.QuotePath(r.String()), chat.QuotePath(r.Place)
		said := rules.Message(*r, dir)
		if chat.CallerFrom(ctx).Role == chat.RoleOperator {
			said = fmt.Sprintf("the file rules close it: %s (%s)", r, r.Place)
		}
		err = fmt.Errorf("%w: %s", err, said)
	}
	return fmt.Errorf("%w: %w", err, chat.ErrInvalid)
}
