package provision

import (
	"context"
	"path"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/state"
)

// Explain says whether the chat's file rules allow something, and which rule says
// so; of a command, whether they allow the paths that the front found in it. Where links lead is
// looked up in the chat, as the chat: root follows none.
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
	// Asked once to learn the names, and once more with what they lead to.
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

// nameList collects the names that rules want to know the links of.
type nameList struct {
	all  []string
	seen map[string]bool
}

// add notes a name, and follows no link: an filerules.Scope's Resolve.
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

// ledBy is an filerules.Scope's Resolve by what the chat's side told.
func ledBy(real map[string]string) func(string) string {
	return func(p string) string {
		if r := real[p]; r != "" {
			return r
		}
		return path.Clean(p)
	}
}

// followLinks has a call judged by rules that know where their own directories are in
// the chat. Rules that deny nothing need not know.
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

// askRules asks the same rules with another way to follow links; not many commands
// at once, as for runs.
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

// resolve asks the chat's side which of the names links lead elsewhere, and where.
func (m *Manager) resolve(ctx context.Context, rec state.Record, names []string) (map[string]string, error) {
	var told map[string]string
	c := fileCall{tool: files.ResolveTool, op: files.Read, args: files.Resolve{}}
	c.Links = names
	c.Linked = func(real map[string]string) (files.Check, error) { told = real; return nil, nil }
	_, err := m.callTool(ctx, rec, c)
	return told, err
}

// explained is the verdict as the caller may know it.
func (m *Manager) explained(ctx context.Context, rec state.Record, v filerules.Verdict) chat.Explained {
	e := v.Explained()
	if m.vague(ctx, rec) {
		e.Rule, e.Place, e.Layer = "", "", ""
		return e
	}
	e.KeptBy = m.keptBy(rec, v)
	return e
}
