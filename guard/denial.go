package guard

import (
	"fmt"

	"github.com/chatd/chatd/chat"
)

// Denial is the error of a command that a guard refuses, a [chat.ErrDenied] of one line.
type Denial struct{ Verdict Verdict }

// Error says why, and what to do instead.
func (d *Denial) Error() string {
	v := d.Verdict
	if v.Vague {
		return fmt.Sprintf("cannot run: %s; %s: %v", v.Message, v.Instead, chat.ErrDenied)
	}
	return fmt.Sprintf("cannot run: %s: rule %s in %s: %s; %s: %v", v.Message, v.Rule, chat.Quote(v.Command), v.Reason, v.Instead, chat.ErrDenied)
}

// Unwrap is [chat.ErrDenied].
func (d *Denial) Unwrap() error { return chat.ErrDenied }

// Rule is the rule that whoever asked may know; empty if it is kept from them.
func (d *Denial) Rule() string {
	if d.Verdict.Vague {
		return ""
	}
	return d.Verdict.Rule
}
