package policy

import (
	"context"
	"errors"
	"path"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filecall"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/verdict"
)

// Inside is what only the chat's session can tell.
type Inside struct {
	// Init returns the session's init process, nil while the chat is asleep. A session may begin
	// or end while links are resolved.
	Init func() *sys.HeldProcess
	// Resolve returns the targets of those names that links redirect, as the chat sees them: root
	// follows no links of a chat.
	Resolve func(names []string) (map[string]string, error)
	// Closed returns the denied paths that bubblewrap masks, and those to which Landlock grants
	// nothing.
	Closed func() (masked, leftOut []string)
}

// CheckRun checks the directory of a command, and the paths that it names, against the file rules
// for bash, if the profile has a guard. Nil allows it.
func (p *InForce) CheckRun(
	ctx context.Context, c Chat, spec chat.RunSpec,
) (*chat.RunDenial, error) {
	if !p.Profile(c.Profile).Guard.On() {
		return nil, nil
	}
	rules, err := p.Rules(c)
	if err != nil {
		return nil, err
	}
	return rules.CheckRun(ctx, spec)
}

// Admit checks the path of a file call against the rules, and makes the call check further names
// against the same rules. Nil allows it.
func (p *InForce) Admit(c Chat, call *filecall.Call) (*files.Denial, error) {
	rules, err := p.Rules(c)
	if err != nil {
		return nil, err
	}
	call.Check = verdict.FileCheck(call.Tool, rules.Ruleset)
	for _, op := range call.Op.Needs() {
		if d := call.Check(op, folded(c, call.Path)); d != nil {
			return d, nil
		}
	}
	return nil, followLinks(call, rules)
}

// followLinks makes the call check against rules that know where links lead their own
// directories in the chat. Rules that deny nothing need no links.
func followLinks(call *filecall.Call, rules *verdict.Rules) error {
	links, err := rules.Links()
	if err != nil || len(links) == 0 {
		return err
	}
	call.Links = links
	call.Linked = func(all []files.Link) error {
		real, err := files.Targets(links, all)
		if err != nil {
			return err
		}
		rs, err := rules.Linked(real)
		if err == nil {
			call.Check = verdict.FileCheck(call.Tool, rs)
		}
		return err
	}
	return nil
}

// folded returns the absolute, clean name that the tools give a path, with no link followed.
// They do not expand ~.
func folded(c Chat, name string) string {
	if !path.IsAbs(name) {
		name = c.Home + "/" + name
	}
	return path.Clean(name)
}

// Explain answers whether the chat's rules allow an operation, which rule decides, and what
// enforces it, as far as the caller may know. For a command it checks the paths that the front
// found in it. For a destination it asks the profile's egress, which file rules and the secrecy
// about them do not concern.
func (p *InForce) Explain(
	ctx context.Context, c Chat, q chat.Question, in Inside,
) (chat.Explained, error) {
	if q.Host != "" {
		return explainEgress(p.Profile(c.Profile).With(c.Egress), q.Destination()), nil
	}
	rules, err := p.Rules(c)
	if err != nil {
		return chat.Explained{}, err
	}
	v, links, err := rules.Explain(ctx, q, func(names []string) (verdict.Links, error) {
		return in.Resolve(names)
	})
	if err != nil {
		return chat.Explained{}, err
	}
	if q.Path != "" && !v.Denied() { // the kernel may still refuse it, because of another name
		name := links.Resolve(filerules.Fold(c.Home, c.Home, q.Path))
		if d := p.denial(ctx, c, in.Init(), name, q.Op == "write" || q.Op == "edit"); d.Denied() {
			v = d
		}
	}
	e := v.Explained()
	if p.Terse(ctx, c.Profile) {
		e.Rule, e.Place, e.Layer = "", "", ""
	} else if v.Denied() {
		masked, leftOut := in.Closed()
		e.KeptBy = rules.KeptBy(v, masked, leftOut)
	}
	return e, nil
}

// denial returns the denial by which the kernel refuses an operation on an absolute name in the
// chat, with its rule, or the zero Verdict. If another name of the file causes the refusal, only
// the enforcer knows, while the session of init lives; init may be nil.
func (p *InForce) denial(
	ctx context.Context, c Chat, init *sys.HeldProcess, name string, changes bool,
) filerules.Verdict {
	rules, err := p.Rules(c)
	if err != nil || !p.Enforced(c) {
		return filerules.Verdict{}
	}
	if v := rules.ByKernel(name, changes); v.Denied() || init == nil {
		return v
	}
	by, err := p.enforcer.Why(ctx, sessionOf(c, init), name)
	if err != nil || by == "" {
		return filerules.Verdict{}
	}
	return rules.ByKernel(by, changes)
}

// NameRule adds the rule to the kernel's denial of a file call, if a rule caused it. It uses the
// name of the caller's request, not a name that the chat reports.
func (p *InForce) NameRule(
	ctx context.Context, c Chat, init *sys.HeldProcess, call *filecall.Call, err error,
) {
	var d *files.Denial
	if !errors.As(err, &d) || d.Rule != files.RuleKernel {
		return
	}
	name := folded(c, call.Path)
	if v := p.denial(ctx, c, init, name, call.Writes()); v.Denied() {
		d.Rule, d.Place, d.Errno = v.Rule.String(), v.Rule.Place, d.Place
		d.Message = p.File(c.Profile).Message(name)
	}
}

// RuleBehind returns the rule by which the kernel closes a name, or the target of the chat's links
// there; nil if none does.
func (p *InForce) RuleBehind(
	ctx context.Context, c Chat, name string, in Inside,
) *filerules.Rule {
	v := p.denial(ctx, c, in.Init(), path.Clean(name), false)
	if v.Denied() || !p.Enforced(c) {
		return v.Rule
	}
	real, err := in.Resolve([]string{name})
	if err != nil || real[name] == "" {
		return nil
	}
	return p.denial(ctx, c, in.Init(), real[name], false).Rule
}
