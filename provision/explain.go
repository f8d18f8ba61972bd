package provision

import (
	"context"
	"path"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/state"
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
	// The first check collects the names; a second one uses the targets of their links.
	var names nameList
	v, err := askRules(ctx, rules.Ruleset, q, names.add)
	var real map[string]string
	if err == nil && !v.Denied() && len(names.all) > 0 {
		if real, err = m.resolve(ctx, rec, names.all); err != nil {
			return chat.Explained{}, err
		}
		if len(real) > 0 {
			v, err = askRules(ctx, rules.Ruleset, q, ledBy(real))
		}
	}
	if err == nil {
		v = m.explainKept(ctx, rec, q, v, real)
	}
	return m.explained(ctx, rec, v), err
}

// nameList collects the names whose links the rules need.
type nameList struct {
	all  []string
	seen map[string]bool
}

// add records a name and follows no link: it is the Resolve of a filerules.Scope.
func (l *nameList) add(p string) string {
	clean := path.Clean(p)
	if l.seen == nil {
		l.seen = map[string]bool{"/": true}
	}
	if !l.seen[p] && clean != "/" {
		l.seen[p] = true
		l.all = append(l.all, p)
	}
	return clean
}

// ledBy returns a Resolve for a filerules.Scope, from the links that the chat's side reported.
func ledBy(real map[string]string) func(string) string {
	return func(p string) string {
		if r := real[p]; r != "" {
			return r
		}
		return path.Clean(p)
	}
}

// followLinks makes the call check against rules that know where links lead their own
// directories in the chat. Rules that deny nothing need no links.
func followLinks(c *fileCall, rules *chatRules) error {
	links, err := rules.links()
	if err != nil || len(links) == 0 {
		return err
	}
	c.Links = links
	c.Linked = func(real map[string]string) (files.Check, error) {
		scope := rules.Scope()
		scope.Resolve = ledBy(real)
		rs, err := rules.Policy().For(scope)
		if err != nil {
			return nil, err
		}
		return judgeOf(c.tool, rs), nil
	}
	return nil
}

// askRules checks q against the same rules with another Resolve. Like those of runs, few
// commands are checked simultaneously.
func askRules(ctx context.Context, rules *filerules.Ruleset, q chat.Question, resolve func(string) string) (filerules.Verdict, error) {
	scope := rules.Scope()
	scope.Resolve = resolve
	rs, err := rules.Policy().For(scope)
	if err != nil {
		return filerules.Verdict{}, err
	}
	if q.Command != "" {
		leave, err := judgeTurn(ctx)
		if err != nil {
			return filerules.Verdict{}, err
		}
		defer leave()
		return rs.CheckNamed(q.Named)
	}
	op, err := filerules.ParseOp(q.Op)
	if err != nil {
		return filerules.Verdict{}, err
	}
	return rs.Verdict(q.Path, op)
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

// explained returns the verdict, without the rule for a caller that may not know it.
func (m *Manager) explained(ctx context.Context, rec state.Record, v filerules.Verdict) chat.Explained {
	e := v.Explained()
	if m.vague(ctx, rec) {
		e.Rule, e.Place, e.Layer = "", "", ""
		return e
	}
	e.KeptBy = m.keptBy(rec, v)
	return e
}
