package provision

import (
	"context"

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
	c.Links = links
	c.Linked = func(real map[string]string) (files.Check, error) {
		rs, err := rules.Linked(real)
		if err != nil {
			return nil, err
		}
		return verdict.FileCheck(c.tool, rs), nil
	}
	return nil
}

// resolve asks the chat's side for the targets of those names that links redirect.
func (m *Manager) resolve(ctx context.Context, rec state.Record, names []string) (map[string]string, error) {
	var told map[string]string
	c := fileCall{tool: files.ResolveTool, op: files.Read, args: files.Resolve{}}
	c.Links = names
	c.Linked = func(real map[string]string) (files.Check, error) { told = real; return nil, nil }
	_, err := m.callTool(ctx, rec, c)
	return told, err
}
