package policy

import (
	"context"
	"path"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
)

// checking bounds how many commands are checked against rules simultaneously.
var checking = make(chat.Turns, 4)

// checkRun checks the directory of a command, and the paths that it names, against the rules for
// bash; nil allows the command. It follows no links, and a command whose check fails runs: the
// kernel enforces the rules.
func (r *Rules) checkRun(ctx context.Context, s chat.RunSpec) (*chat.RunDenial, error) {
	if len(r.Rules()) == 0 {
		return nil, nil
	}
	leave, err := checking.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	v, err := r.CheckNamed(append([]chat.NamedPath{{Text: s.Dir(r.Scope().Home)}}, s.Named...))
	if err != nil || !v.Denied() {
		return nil, nil
	}
	p := r.Policy()
	return &chat.RunDenial{
		Rule: v.Rule.String(), Place: v.Rule.Place, Message: r.Message(*v.Rule, v.Name), Command: v.Name,
		Reason: "the file rules deny it", Instead: "use another path, or ask an operator",
		Terse: p.Terse,
	}, nil
}

// explain answers a question about one operation, or about a command by the paths that the front
// found in it. follow asks the chat for the targets of links, which a second check uses.
func (r *Rules) explain(
	ctx context.Context, q chat.Question, follow func(names []string) (map[string]filewire.Link, error),
) (v filerules.Verdict, links linkTargets, err error) {
	var names nameList
	if v, err = r.ask(ctx, q, names.add); err != nil || v.Denied() || len(names.all) == 0 {
		return v, nil, err
	}
	if links, err = follow(names.all); err == nil && len(links) > 0 {
		v, err = r.ask(ctx, q, links.resolve)
	}
	return v, links, err
}

// ask checks q against the same rules with to as their Resolve. Like those of runs, few commands are
// checked simultaneously.
func (r *Rules) ask(
	ctx context.Context, q chat.Question, to func(name string) string,
) (filerules.Verdict, error) {
	scope := r.Scope()
	scope.Resolve = to
	rs, err := r.Policy().For(scope)
	if err != nil {
		return filerules.Verdict{}, err
	}
	if q.Command == "" {
		op, err := filerules.ParseOp(q.Op)
		if err != nil {
			return filerules.Verdict{}, err
		}
		return rs.Verdict(q.Path, op)
	}
	leave, err := checking.Take(ctx)
	if err != nil {
		return filerules.Verdict{}, err
	}
	defer leave()
	return rs.CheckNamed(q.Named)
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

// linkTargets are the targets of those names that links redirect, as the chat's side reported them:
// root follows none.
type linkTargets map[string]filewire.Link

// resolve returns the target of a name, for a [filerules.Scope].
func (l linkTargets) resolve(name string) string {
	if to := l[name].To; to != "" {
		return to
	}
	return path.Clean(name)
}
