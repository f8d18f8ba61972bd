package roottest

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

// TestToolsLeaveNothing: where the kernel's walls close the name that a tool would make,
// nothing is made, awake or asleep, and the denial names the rule.
func TestToolsLeaveNothing(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, rules: [{deny: "**/.tmp-*", ops: [bash]}, {deny: "*.sh", ops: [bash]}]}`)
	m := open(t, opt)
	c := sleeper(t, m, "litter")
	putDir(t, c, "d")
	names := func() string {
		entries, err := os.ReadDir(c.Home + "/d")
		must(t, err)
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return strings.Join(out, " ")
	}
	text := "text"
	for _, awake := range []bool{false, true} {
		if awake {
			wake(t, m, c.ID)
		}
		for _, try := range []struct {
			rule string
			err  error
		}{
			{".tmp-*", errorOf(m.WriteFile(operator(t.Context()), c.ID, files.WriteFile{Path: "d/new/notes", Content: &text}, nil))},
			{"*.sh", errorOf(m.AppendFile(operator(t.Context()), c.ID, files.WriteFile{Path: "d/x.sh", Content: &text}, nil))},
		} {
			var d *files.Denial
			if !errors.As(try.err, &d) || d.Place != "rules.yaml:1" || !strings.Contains(d.Rule, try.rule) || !errors.Is(try.err, chat.ErrDenied) {
				t.Errorf("awake %t, %s: %v", awake, try.rule, try.err)
			}
		}
		if _, err := m.AppendFile(operator(t.Context()), c.ID, files.WriteFile{Path: "d/notes", Content: &text}, nil); err != nil {
			t.Error(err)
		}
		if got := names(); got != "notes" {
			t.Errorf("awake %t: there is %q", awake, got)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }
