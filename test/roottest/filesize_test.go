package roottest

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestFileSize: fsize bounds what a run, the terminal and the file tools write to one file; no
// process of the chat raises it. Without it the same goes through.
func TestFileSize(t *testing.T) {
	opt := options(t)
	bounded := opt.Profiles["default"]
	bounded.Name, bounded.Limits.FSize = "bounded", 1<<20
	opt.Profiles["bounded"] = bounded
	m := open(t, opt)
	for profile, want := range map[string]string{"bounded": "153 1048576", "default": "0 3145728"} {
		c := create(t, m, "file size "+profile, profile)
		const fill = "ulimit -f unlimited 2>/dev/null; " +
			"head -c 3M /dev/zero >f; echo $? $(stat -c %s f); rm f"
		if r := run(t, m, c.ID, fill); strings.TrimSpace(r.Stdout) != want {
			t.Errorf("%s: a run: %+v, want %s", profile, r, want)
		}
		in := chat.Input{Text: fill, Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt}}
		got, err := m.InputWait(operator(t.Context()), c.ID, in)
		expect.True(t, err == nil && strings.Contains(got.Text, want),
			"%s: the terminal: %q, %v, want %s", profile, got.Text, err, want)
		write := filewire.WriteFile{Path: "big", Stream: true}
		body := bytes.NewReader(make([]byte, 3<<20))
		_, err = m.WriteFile(operator(t.Context()), c.ID, write, body)
		if profile == "default" {
			must.Do(t, err)
			continue
		}
		expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "file too large"),
			"%s: write_file: %v, want that the file is too large", profile, err)
		if left, _ := filepath.Glob(filepath.Join(c.Home, "*big*")); len(left) > 0 {
			t.Errorf("%s: write_file left %v", profile, left)
		}
		if r := run(t, m, c.ID, "ls -A | grep -c tmp"); strings.TrimSpace(r.Stdout) != "0" {
			t.Errorf("%s: write_file left %+v", profile, r)
		}
	}
}
