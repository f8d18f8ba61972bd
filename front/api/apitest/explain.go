package apitest

import (
	"context"
	"path"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// Explain asks Deny.
func (m *Memory) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	if err := q.Validate(); err != nil {
		return chat.Explained{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.Host != "" {
		_, err := m.reach(ctx, id)
		return m.explainTo(q.Destination()), err
	}
	c, err := m.reach(ctx, id)
	if err != nil {
		return chat.Explained{}, err
	}
	name := q.Path
	if !path.IsAbs(name) {
		name = c.Home + "/" + name
	}
	name = path.Clean(name)
	var d *filewire.Denial
	if m.Deny != nil {
		d = m.Deny(filewire.Op(q.Op), name)
	}
	switch {
	case d != nil:
		return chat.Explained{Verdict: "deny", Rule: d.Rule, Place: d.Place, Layer: d.Layer, Name: d.Path,
			Paths: []string{}}, nil
	case q.Command != "":
		e := chat.Explained{Verdict: "allow", Layer: "none", Paths: []string{}}
		for _, n := range q.Named {
			e.Paths = append(e.Paths, n.Text)
		}
		return e, nil
	}
	return chat.Explained{Verdict: "allow", Layer: "none", Name: name, Paths: []string{}}, nil
}

// explainTo compares a name with Egress.
func (m *Memory) explainTo(to chat.Destination) chat.Explained {
	e := chat.Explained{Verdict: "deny", Layer: "egress", Name: to.String(), Paths: []string{}}
	e.Why = "it is not listed"
	if by, ok := chat.ReachableHost(m.Egress, to.UDP, to.Name(), to.Port); ok {
		e.Verdict, e.Rule, e.Why = "allow", by.String(), "it is listed"
		e.Place = "egress of profile default"
	}
	return e
}
