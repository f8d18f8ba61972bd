package shims

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestFileTool: the tool does one request where its first line lets it, and what is
// no such line ends it before it looks at anything.
func TestFileTool(t *testing.T) {
	home := t.TempDir()
	line := must.Get(plan.FileTool{Workspace: home, MaxBytes: 4}.Line())(t)
	write := func(content string) string {
		return `{"tool":"write_file","parameters":{"path":"f","content":"` + content + `"}}` + "\n"
	}
	for _, c := range []struct{ name, in, want string }{
		{"a request", string(line) + write("abcd"), `"message":"File written: f"`},
		{"only one request", string(line) + write("1") + write("2"), `"size":1,`},
		{"more than max_bytes", string(line) + write("abcde"), `more than 4 bytes`},
		{"no request", string(line), `cannot read the request`},
	} {
		var out bytes.Buffer
		if err := serveFileTool(strings.NewReader(c.in), &out); err != nil || !strings.Contains(out.String(), c.want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %v, %q", c.name, err, out.String())
		}
	}
	for _, bad := range []string{
		"", "\n", "{}", write("x"), `{"workspace":"/"} {}` + "\n", `{"workspace":"/","check":true}` + "\n", `{"workspace":7}` + "\n",
		`{"workspace":"` + strings.Repeat("x", plan.MaxFileTool) + `"}` + "\n",
	} {
		var out bytes.Buffer
		if err := serveFileTool(strings.NewReader(bad), &out); !errors.Is(err, chat.ErrInvalid) || out.Len() > 0 {
			t.Errorf("%.40q: %v, %q", bad, err, out.String())
		}
	}
	for _, workspace := range []string{"", "relative", home + "/missing"} {
		line := must.Get(plan.FileTool{Workspace: workspace}.Line())(t)
		expect.True(t, serveFileTool(bytes.NewReader(line), &bytes.Buffer{}) != nil,
			"workspace %q was opened", workspace)
	}
	expect.True(t, runFileTool([]string{"x"}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}) != 0,
		"an argument was taken")
}
