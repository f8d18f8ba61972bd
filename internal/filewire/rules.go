package filewire

import (
	"encoding/json"

	"github.com/chatd/chatd/filerules"
)

// Rules are the file rules of a chat, compiled.
type Rules struct {
	Compiled json.RawMessage `json:"compiled"`
	Agent    string          `json:"agent,omitempty"`
}

// Check compiles the rules for a home. Links of the directories that they name are followed here,
// as the caller.
func (r *Rules) Check(home string) (Check, error) {
	p, err := filerules.ReadCompiled(r.Compiled)
	if err != nil {
		return nil, err
	}
	rs, err := p.For(filerules.Scope{Agent: r.Agent, Home: home, Resolve: filerules.Physical})
	if err != nil {
		return nil, err
	}
	return CheckBy(rs), nil
}

// CheckBy returns the check by compiled rules, for the operation alone: the language has the last
// word. What the rules cannot answer is denied.
func CheckBy(rules *filerules.Ruleset) Check {
	return func(op Op, name string) *Denial {
		d := &Denial{Op: op, Path: name, Rule: "cannot be checked"}
		asked, err := filerules.ParseOp(string(op))
		var v filerules.Verdict
		if err == nil {
			v, err = rules.Check(name, asked)
		}
		if err != nil {
			d.Message = err.Error()
			return d
		}
		if !v.Denied() {
			return nil
		}
		d.Rule, d.Place, d.Layer = v.Rule.String(), v.Rule.Place, string(v.Layer)
		d.Message = rules.Message(*v.Rule, name)
		return d
	}
}
