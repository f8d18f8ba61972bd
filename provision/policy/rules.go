package policy

import (
	"context"

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

// ask checks q against the same rules with another Resolve. Like those of runs, few commands are
// checked simultaneously.
func (r *Rules) ask(ctx context.Context, q chat.Question, to resolver) (filerules.Verdict, error) {
	rs, err := link(r.Ruleset, to)
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
