package chat

import (
	"fmt"
	"slices"
)

// MaxDenied bounds the refusals that the answer of a run has.
const MaxDenied = 16

// Denied is what the chat was refused while a run was under way: by its file rules, where the
// kernel reports it, or by its egress. Equal ones are one.
type Denied struct {
	// Op is open or connect.
	Op   string `json:"op" enum:"open,connect" doc:"What was refused."`
	Path string `json:"path,omitempty" doc:"The file; none if the rules keep it to operators."`
	Rule string `json:"rule,omitempty" doc:"The rule that denies it."`
	Host string `json:"host,omitempty" doc:"The name or address."`
	Port uint16 `json:"port,omitempty" doc:"Its port; none for a question for a name."`
}

// String is the refusal in one line.
func (d Denied) String() string {
	switch {
	case d.Op == "connect" && d.Port == 0:
		return "denied: egress refused " + QuotePath(d.Host)
	case d.Op == "connect":
		return fmt.Sprintf("denied: egress refused %s port %d", QuotePath(d.Host), d.Port)
	case d.Path == "":
		return "denied: a file, by policy"
	}
	return fmt.Sprintf("denied: %s %s by %s", d.Op, QuotePath(d.Path), QuotePath(d.Rule))
}

// Reasons are the sentences of Why, and a line for each of Denied.
func (r RunResult) Reasons() []string {
	all := slices.Clip(r.Why)
	for _, d := range r.Denied {
		all = append(all, d.String())
	}
	return all
}
