package provision

import (
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/verdict"
)

// Explain answers whether the chat's file rules allow an operation, and which rule decides. For a
// command it checks the paths that the front found in it. Links are followed in the chat, as the
// chat: root follows none.
func (m *Manager) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	if err := q.Validate(); err != nil {
		return chat.Explained{}, err
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Explained{}, err
	}
	rules, err := m.rules(rec)
	if err != nil {
		return chat.Explained{}, err
	}
	v, links, err := rules.Explain(ctx, q, func(names []string) (verdict.Links, error) {
		return m.resolve(ctx, rec, names)
	})
	if err != nil {
		return chat.Explained{}, err
	}
	v = m.explainKept(ctx, rec, q, v, links)
	e := v.Explained()
	if m.terse(ctx, rec) {
		e.Rule, e.Place, e.Layer = "", "", ""
	} else if v.Denied() {
		masked, leftOut := m.closedBy(rec)
		e.KeptBy = rules.KeptBy(v, masked, leftOut)
	}
	return e, nil
}

// followLinks makes the call check against rules that know where links lead their own
// directories in the chat. Rules that deny nothing need no links.
func followLinks(c *fileCall, rules *verdict.Rules) error {
	links, err := rules.Links()
	if err != nil || len(links) == 0 {
		return err
	}
	c.links = links
	c.linked = func(all []files.Link) error {
		real, err := files.Targets(links, all)
		if err != nil {
			return err
		}
		rs, err := rules.Linked(real)
		if err == nil {
			c.check = verdict.FileCheck(c.tool, rs)
		}
		return err
	}
	return nil
}

// resolve asks the chat's side for the targets of those names that links redirect.
func (m *Manager) resolve(ctx context.Context, rec state.Record, names []string) (map[string]string, error) {
	var real map[string]string
	c := &fileCall{tool: files.ResolveTool, op: files.Read, args: files.Resolve{}, links: names}
	c.talk = func(ctx context.Context, t files.Started) (_ files.Answer, err error) {
		defer func() { _ = errors.Join(t.In.Close(), t.Out.Close()) }() // nothing is lost
		defer context.AfterFunc(ctx, func() { _ = t.Out.SetReadDeadline(past) })()
		real, err = files.ReadTargets(t.Out, names)
		return files.Answer{}, err
	}
	_, err := m.callTool(ctx, rec, c)
	return real, err
}
