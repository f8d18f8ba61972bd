package policy

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision/enforcer"
)

// The kernel refuses an open by file rules in two ways. A mask mount refuses it without a
// report. For a file that came later the kernel asks the enforcer, which counts its refusals.

// refused returns what audits a line about refused opens.
func (p *InForce) refused(ctx context.Context) func(enforcer.Refusal) {
	return func(r enforcer.Refusal) {
		detail := map[string]string{"more": fmt.Sprint(r.Times), "by": "the kernel"}
		if !r.Sum {
			c, err := p.opt.Chat(r.Chat)
			if err != nil {
				return // reaped meanwhile
			}
			var rule string
			denied := chat.Denied{Op: "open"}
			if detail, rule = p.refusedFile(c, r); !p.File(c.Profile).Terse {
				denied.Path, denied.Rule = r.Path, rule
			}
			if p.opt.Denied(r.Chat, denied); r.Unsaid {
				return
			}
		}
		p.opt.Audit(ctx, r.Chat, "open", detail)
	}
}

// TakeRefused asks for the opens that the enforcer refused the chat until now.
func (p *InForce) TakeRefused(ctx context.Context, c Chat) {
	if p.Enforced(c) {
		p.enforcer.TakeRefused(ctx, p.refused(context.WithoutCancel(ctx)))
	}
}

// refusedFile returns the audit detail of one refused file, with the rule that closes it now.
func (p *InForce) refusedFile(c Chat, r enforcer.Refusal) (detail map[string]string, rule string) {
	detail = map[string]string{
		"path": chat.QuotePath(r.Path), "times": fmt.Sprint(r.Times), "by": "the kernel",
	}
	if r.By != r.Path && r.By != "" {
		detail["name"] = chat.QuotePath(r.By) // a name that it had, or would have
	}
	rules, err := p.Rules(c)
	if err != nil {
		detail["error"] = err.Error()
		return detail, rule
	}
	if h := rules.ClassOf(r.By); r.By != "" && h.Class != filerules.Open {
		rule = h.Why.Rule.String()
		detail["rule"] = chat.QuotePath(rule)
		detail["place"], detail["layer"] = chat.QuotePath(h.Why.Rule.Place), string(h.Why.Layer)
	} else {
		rule = "one about a name that it had"
		detail["rule"] = rule
	}
	return detail, rule
}

// redact leaves the rule, its place and the path out of a denial by rules or by the kernel, if the
// caller may know no more than that it is denied.
func redact(err error, terse bool) error {
	if d, ok := errors.AsType[*filewire.Denial](err); ok && terse && (byRules(d) || d.Errno != "") {
		d.Path, d.Rule, d.Place, d.Layer = "", "", "", ""
	}
	return err
}

// byRules reports a denial that a [FileCheck] made of a rule.
func byRules(d *filewire.Denial) bool {
	switch filerules.Layer(d.Layer) {
	case filerules.LayerAgentRules, filerules.LayerAgentDeny, filerules.LayerGlobalRules,
		filerules.LayerGlobalDeny, filerules.LayerDefaults:
		return true
	}
	return false
}
