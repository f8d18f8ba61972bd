package policy

import (
	"context"
	"errors"
	"path"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/filecall"
)

// Inside is what only the chat's session can tell.
type Inside struct {
	// Init returns the session's init process, nil while the chat is asleep. A session may begin
	// or end while links are resolved.
	Init func() *sys.ProcessHandle
	// Resolve returns the targets of those names that links redirect, as the chat sees them: root
	// follows no links of a chat.
	Resolve func(names []string) (map[string]filewire.Link, error)
	// Closed returns the denied paths that bubblewrap masks, and those to which Landlock grants
	// nothing.
	Closed func() (masked, leftOut []string)
}

// CheckRun checks the directory of a command, and the paths that it names, against the file rules
// for bash, if the profile has a guard. Nil allows it.
func (p *InForce) CheckRun(ctx context.Context, c Chat, spec chat.RunSpec) (*chat.RunDenial, error) {
	if !p.Profile(c.Profile).Guard.On() {
		return nil, nil
	}
	rules, err := p.Rules(c)
	if err != nil {
		return nil, err
	}
	return rules.checkRun(ctx, spec)
}

// Admit checks the path of a file call against the rules, and gives the tool the same rules for
// further names. init is as in [Inside]: while the session lives, the enforcer knows the names that
// a file had. Nil allows the call.
func (p *InForce) Admit(
	ctx context.Context, c Chat, init *sys.ProcessHandle, call *filecall.Call,
) (*filewire.Denial, error) {
	rules, err := p.Rules(c)
	if err != nil {
		return nil, err
	}
	check := filewire.CheckBy(rules.Ruleset)
	name := folded(c, call.Path)
	d := check(call.Op, name)
	if d == nil {
		if by := p.otherName(ctx, c, init, name); by != "" {
			d = check(call.Op, by)
		}
	}
	if d != nil {
		d.Tool = call.Tool
		return d, nil
	}
	call.Rules = &filewire.Rules{Compiled: p.File(c.Profile).Compiled(), Agent: c.Agent}
	call.Denies = func(d *filewire.Denial) *filewire.Denial { return denialOf(rules.Ruleset, call, d) }
	return nil, nil
}

// otherName returns the name by which the kernel closes a file that has another one by now; empty if
// there is none, or no session that lives.
func (p *InForce) otherName(ctx context.Context, c Chat, init *sys.ProcessHandle, name string) string {
	if init == nil || !p.Enforced(c) {
		return ""
	}
	by, err := p.enforcer.Why(ctx, sessionOf(c, init), name)
	if err != nil || by == name {
		return ""
	}
	return by
}

// denialOf returns the denial by a rule that a tool reports, with the layer of the rule; nil if no
// such rule is about the call's operation.
func denialOf(rs *filerules.Ruleset, call *filecall.Call, d *filewire.Denial) *filewire.Denial {
	op, err := filerules.ParseOp(string(call.Op))
	for _, r := range rs.Rules() {
		if err == nil && r.Effect == filerules.Deny && r.Ops&op != 0 &&
			r.Rule.String() == d.Rule && r.Rule.Place == d.Place {
			return &filewire.Denial{
				Tool: call.Tool, Op: call.Op, Path: d.Path, Rule: d.Rule, Place: d.Place,
				Layer: string(r.Layer), Message: rs.Message(r.Rule, d.Path),
			}
		}
	}
	return nil
}

// folded returns the absolute, clean name that the tools give a path, with no link followed.
func folded(c Chat, name string) string {
	return path.Clean(filerules.Absolute(c.Home, c.Home, name))
}

// Explain answers whether the chat's rules allow an operation, which rule decides, and what
// enforces it, as far as the caller may know. For a command it checks the paths that the front
// found in it. For a destination it asks the profile's egress, which file rules and the secrecy
// about them do not concern.
func (p *InForce) Explain(ctx context.Context, c Chat, q chat.Question, in Inside) (chat.Explained, error) {
	if q.Host != "" {
		return explainEgress(p.Profile(c.Profile).With(c.Egress), q.Destination()), nil
	}
	rules, err := p.Rules(c)
	if err != nil {
		return chat.Explained{}, err
	}
	v, links, err := rules.explain(ctx, q, in.Resolve)
	if err != nil {
		return chat.Explained{}, err
	}
	if q.Path != "" && !v.Denied() { // it may be, because of another name
		name := links.resolve(filerules.Fold(c.Home, c.Home, q.Path))
		d, err := p.byOtherName(ctx, c, in.Init(), name, q.Op)
		if err != nil {
			return chat.Explained{}, err
		}
		if d.Denied() {
			v = d
		}
	}
	e := v.Explained()
	at := links[filerules.Absolute(c.Home, c.Home, q.Path)]
	e.Real, e.Refused = at.To, at.No
	if p.Terse(ctx, c.Profile) {
		e.Rule, e.Place, e.Layer = "", "", ""
	} else if v.Denied() {
		masked, leftOut := in.Closed()
		e.KeptBy = rules.KeptBy(v, masked, leftOut)
	}
	return e, nil
}

// byOtherName returns the denial of an operation on a file because of another name, or the zero
// Verdict.
func (p *InForce) byOtherName(
	ctx context.Context, c Chat, init *sys.ProcessHandle, name, op string,
) (v filerules.Verdict, err error) {
	if op == "bash" {
		return p.denial(ctx, c, init, name), nil
	}
	by := p.otherName(ctx, c, init, name)
	rules, err := p.Rules(c)
	asked, operr := filerules.ParseOp(op)
	if err != nil || operr != nil || by == "" {
		return v, errors.Join(err, operr)
	}
	v, err = rules.Verdict(by, asked)
	v.ByKernel = true
	return v, err
}

// denial returns the denial by which the kernel refuses to open an absolute name in the chat, with
// its rule, or the zero Verdict. If another name of the file causes the refusal, only the enforcer
// knows, while the session of init lives; init may be nil.
func (p *InForce) denial(
	ctx context.Context, c Chat, init *sys.ProcessHandle, name string,
) filerules.Verdict {
	rules, err := p.Rules(c)
	if err != nil || !p.Enforced(c) {
		return filerules.Verdict{}
	}
	if v := rules.byKernel(name); v.Denied() {
		return v
	}
	if by := p.otherName(ctx, c, init, name); by != "" {
		return rules.byKernel(by)
	}
	return filerules.Verdict{}
}

// RuleBehind returns the rule by which the kernel closes a name, or the target of the chat's links
// there; nil if none does.
func (p *InForce) RuleBehind(ctx context.Context, c Chat, name string, in Inside) *filerules.Rule {
	v := p.denial(ctx, c, in.Init(), path.Clean(name))
	if v.Denied() || !p.Enforced(c) {
		return v.Rule
	}
	real, err := in.Resolve([]string{name})
	if err != nil || real[name].To == "" {
		return nil
	}
	return p.denial(ctx, c, in.Init(), real[name].To).Rule
}
