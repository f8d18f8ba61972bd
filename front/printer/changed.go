package printer

import (
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Changed is a line for what holds now, one for what waits for the next wake, and one for what is
// tried again.
func Changed(c *chat.Changed) (lines string) {
	if c == nil {
		return ""
	}
	for _, l := range []struct {
		when string
		what []string
	}{
		{"now", c.Now}, {"at the next wake", c.NextWake},
		{"not yet, tried again each minute", c.Retried},
	} {
		if len(l.what) > 0 {
			lines += fmt.Sprintf("%s: %s\n", l.when, strings.Join(l.what, ", "))
		}
	}
	if c.Why != "" {
		lines += "why: " + Escape(c.Why) + "\n"
	}
	return lines
}

// oldPlanWords says what a session has otherwise than its chat.
func oldPlanWords(ch chat.Chat) string {
	return strings.Join(ch.OldPlan, ", ") + "; until the next wake"
}
