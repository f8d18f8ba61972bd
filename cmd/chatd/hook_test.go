package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/test/must"
)

// TestHookHostile: what a hook cannot read, or cannot ask about, blocks the tool.
func TestHookHostile(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	must.Do(t, os.WriteFile(rules, []byte("access: {deny: ['**/.env']}\n"), 0o600))
	const read = `{"tool_name":"Read","cwd":"/w","tool_input":`
	for _, text := range []string{
		"", "null", "[]", "{", "1", `"Read"`, "{}", "\xff\xfe", `{"tool_name":1,"tool_input":{}}`,
		`{"tool_name":"","tool_input":{}}`, `{"tool_name":"Read"}`, read + `null}`, read + `[]}`, read + `{}}`,
		read + `{"file_path":1}}`, read + `{"file_path":""}}`, read + `{"file_path":null}}`, read + `{"file_path":[".env"]}}`,
		read + `{"file_path":{"path":"x"}}}`, read + `{"FILE_PATH":"x"}}`, read + `{"file_path":"a\u0000b"}}`,
		read + `{"file_path":"a","path":"b"}}`, read + `{"file_path":"a"}} {"tool_name":"Read"}`,
		read + `{"file_path":"` + strings.Repeat("x", maxHookInput) + `"}}`,
		`{"tool_name":"Bash","cwd":7,"tool_input":{"command":"ls"}}`, `{"tool_name":"Bash","tool_input":{"command":["ls"]}}`,
		`{"tool_name":"Bash","tool_input":{"command":"ls 'unclosed"}}`, `{"tool_name":"Bash","tool_input":{"Command":"ls"}}`,
		read + `{"file_path":"\ud800"}}x`,
	} {
		var out, errOut strings.Builder
		code := mainWith(t.Context(), []string{"chatd", "hook", "check", "claude", "--policy", rules}, strings.NewReader(text), &out, &errOut)
		if code != hookBlocks || out.Len() > 0 || !strings.HasPrefix(errOut.String(), "chatd: cannot ") {
			t.Errorf("%.80q: code %d, %q, %q", text, code, out.String(), errOut.String())
		}
		out.Reset()
		text = strings.NewReplacer("tool_name", "toolName", "tool_input", "input", "Read", "read", "Bash", "bash").Replace(text)
		code = mainWith(t.Context(), []string{"chatd", "hook", "check", "pi", "--policy", rules}, strings.NewReader(text), &out, &errOut)
		if code != hookBlocks || !strings.HasPrefix(out.String(), `{"block":true,"reason":"cannot check the call: `) {
			t.Errorf("pi: %.80q: code %d, %q", text, code, out.String())
		}
	}
}

// TestHookSilentDaemon: a daemon that does not answer blocks the tool, before the program gives up.
func TestHookSilentDaemon(t *testing.T) {
	old := hookTimeout
	t.Cleanup(func() { hookTimeout = old })
	hookTimeout = time.Millisecond
	socket := filepath.Join(t.TempDir(), "s")
	l := must.Get(net.Listen("unix", socket))(t)
	defer l.Close()
	var out, errOut strings.Builder
	args := []string{"chatd", "--socket", socket, "hook", "check", "claude", "--chat", strings.Repeat("a", 16)}
	event := strings.NewReader(`{"tool_name":"Read","cwd":"/w","tool_input":{"file_path":"x"}}`)
	code := mainWith(t.Context(), args, event, &out, &errOut)
	if code != hookBlocks || out.Len() > 0 || !strings.Contains(errOut.String(), "deadline exceeded") {
		t.Errorf("code %d, %q, %q", code, out.String(), errOut.String())
	}
}

// TestHookWays: every way to write a denied path in a tool's argument is denied, and so is a link to
// it.
func TestHookWays(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	must.Do(t, os.WriteFile(rules, []byte("access: {deny: ['**/.env']}\n"), 0o600))
	must.Do(t, os.Symlink(".env", filepath.Join(dir, "link")))
	for _, path := range []string{".env", "./.env", "a/../.env", dir + "/.env", "//" + dir + "//.env", "link", "~/.env", ".env/", "/proc/self/cwd/.env"} {
		for program, text := range map[string]string{
			"claude": `{"tool_name":"Write","cwd":"` + dir + `","tool_input":{"content":"","file_path":"` + path + `"}}`,
			"gemini": `{"tool_name":"read_file","cwd":"` + dir + `","tool_input":{"file_path":"` + path + `"}}`,
			"pi":     `{"type":"tool_call","toolName":"edit","input":{"path":"` + path + `","edits":[]}}`,
		} {
			var out, errOut strings.Builder
			args := []string{"chatd", "hook", "check", program, "--policy", rules, "--home", dir, "--cwd", dir}
			mainWith(t.Context(), args, strings.NewReader(text), &out, &errOut)
			if !strings.Contains(out.String(), "blocked by policy") {
				t.Errorf("%s %s: %q, %q", program, path, out.String(), errOut.String())
			}
		}
	}
}
