package filewire

import (
	"github.com/chatd/chatd/filerules"
)

// Rules are the file rules of a chat, as their file has them.
type Rules struct {
	File  string `json:"file"`
	Text  []byte `json:"text"`
	Agent string `json:"agent,omitempty"`
}

// check compiles the rules for a home. Links of the directories that they name are followed here,
// as the caller.
func (r *Rules) Check(home string) (Check, error) {
	p, err := filerules.Load(r.File, r.Text)
	if err != nil {
		return nil, err
	}
	rs, err := p.For(filerules.Scope{Agent: r.Agent, Home: home, Resolve: filerules.Physical})
	if err != nil {
		return nil, err
	}
	return CheckBy(rs), nil
}
