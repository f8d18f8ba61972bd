package roottest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestPatternsBehindLinks: a rule about a name that is a link is about what it leads to, to
// explain and to each tool, awake and asleep, with many other rules beside it.
func TestPatternsBehindLinks(t *testing.T) {
	rules := "access:\n  useDefaults: false\n  rules:\n    - {deny: ~/l/x, ops: [read, write, edit]}\n"
	for i := range 900 {
		rules += fmt.Sprintf("    - {deny: ~/other/%d, ops: [read]}\n", i)
	}
	m := open(t, ruledOptions(t, rules))
	c := sleeper(t, m, "behind")
	for _, name := range []string{"d/x", "d/y", "away/x"} {
		file := putFile(t, c, name, "text")
		must.Do(t, os.Chown(file, int(c.UID), int(c.UID)))
	}
	must.Do(t, os.Symlink("d", filepath.Join(c.Home, "l")))
	text := "more"
	begin := func(filewire.Answer) io.Writer { return io.Discard }
	for _, awake := range []bool{false, true} {
		if awake {
			wake(t, m, c.ID)
		}
		for path, denied := range map[string]bool{"d/x": true, "l/x": true, "d/../l/x": true, "d/y": false, "l/y": false, "away/x": false} {
			acts := map[string]error{
				"read":   errorOf(m.ReadFile(operator(t.Context()), c.ID, filewire.ReadFile{Path: path}, begin)),
				"append": errorOf(m.AppendFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: path, Content: &text}, nil)),
				"write":  errorOf(m.WriteFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: path, Content: &text}, nil)),
				"edit":   errorOf(m.EditFile(operator(t.Context()), c.ID, filewire.EditFile{Path: path, OldText: "more", NewText: "more"})),
			}
			for act, err := range acts {
				var d *filewire.Denial
				if denied != errors.As(err, &d) || denied && d.Place != "rules.yaml:4" {
					t.Errorf("awake %t: %s of %s: %v", awake, act, path, err)
				}
			}
			got, err := m.Explain(operator(t.Context()), c.ID, chat.Question{Path: path, Op: "read"})
			expect.True(t, err == nil && (got.Verdict == "deny") == denied,
				"awake %t: explain says of %s: %+v, %v", awake, path, got, err)
		}
		command := "cat " + strings.Repeat("y ", 300) + "d/x"
		got, err := front(t, m).Explain(operator(t.Context()), c.ID, chat.Question{Command: command})
		expect.True(t, err == nil && got.Verdict == "allow" && len(got.Paths) != 0,
			"awake %t: explain of a long command: %+v, %v", awake, got.Verdict, err)
	}
}

func errorOf[T any](_ T, err error) error { return err }
