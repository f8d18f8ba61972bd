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

// check compiles the rules for a home. Links of the directories that they name are followed here,
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
