//go:build long

package roottest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// hookedAgents are the agents of which deploy/agents.md installs the hook, with the command line
// that asks them once, and the tool that reads a file.
var hookedAgents = map[string]struct{ argv, read []string }{
	"claude": {[]string{"claude", "-p"}, []string{"Read", "file_path"}},
	"gemini": {[]string{"gemini", "--yolo", "-p"}, []string{"read_file", "file_path"}},
	"pi":     {[]string{"pi", "-p"}, []string{"read", "path"}},
}

// TestLongAgentHooks: agents as they are published, outside of chats and with the documented
// settings alone, do not run what the rules of a chat refuse, tell the model why, and run what
// those allow. Without chatd they run nothing.
func TestLongAgentHooks(t *testing.T) {
	needsRoot(t)
	if os.Getenv("CHATD_TEST_LONG") == "" {
		t.Skip("NOT TRIED: want CHATD_TEST_LONG=1, see test/all agents")
	}
	var packages []string
	for name := range hookedAgents {
		packages = append(packages, realAgents[name].pkg)
	}
	installAgents(t, packages...)
	opt := options(t)
	config := configFile(t, opt)
	rules := filepath.Join(filepath.Dir(opt.State), "rules.yaml")
	must.Do(t, os.WriteFile(rules, []byte("access: {useDefaults: false, deny: [~/closed/**]}\n"), 0o600))
	text := must.Get(os.ReadFile(config))(t)
	text = fmt.Appendf(text, "profiles: {ruled: {access_file: %s, commands: ['*']}}\n", rules)
	must.Do(t, os.WriteFile(config, text, 0o600))
	d := startDaemonOf(t, opt, config, "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "hooked", Profile: "ruled"})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, d.Reap(context.Background(), c.ID)); endEnforcer(t, opt) })
	putFile(t, c, "closed/k", secret)
	putFile(t, c, "open/k", "open to all\n")
	for name := range hookedAgents {
		t.Run(name, func(t *testing.T) { hookedIn(t, filepath.Join(opt.Run, "chatd.sock"), c, name).all() })
	}
}

// hooked is an agent with the hook.
type hooked struct {
	t    *testing.T
	c    chat.Chat
	m    *model
	name string
	home string // the agent's
	env  []string
}

func hookedIn(t *testing.T, socket string, c chat.Chat, name string) hooked {
	a := hooked{t: t, c: c, m: &model{}, name: name, home: t.TempDir()}
	server := httptest.NewServer(a.m)
	t.Cleanup(server.Close)
	for file, text := range realAgents[name].files {
		a.put(file, strings.ReplaceAll(text, "@model@", server.URL))
	}
	a.installHook()
	a.env = append(os.Environ(), "HOME="+a.home, "CHATD_SOCKET="+socket,
		"PATH="+filepath.Dir(programs.chatd)+":/usr/local/bin:/usr/bin:/bin",
		"IS_SANDBOX=1", // Claude Code as root wants it
		"ANTHROPIC_BASE_URL="+server.URL, "GOOGLE_GEMINI_BASE_URL="+server.URL, "PI_OFFLINE=1",
		"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	for _, k := range modelKeys {
		a.env = append(a.env, k.env+"="+k.value)
	}
	return a
}

// put writes a file of the agent's home. Of JSON that is there it sets the top keys alone.
func (a hooked) put(name, text string) {
	a.t.Helper()
	file := filepath.Join(a.home, name)
	if old, err := os.ReadFile(file); err == nil {
		var all map[string]json.RawMessage
		must.Do(a.t, json.Unmarshal(old, &all))
		must.Do(a.t, json.Unmarshal([]byte(text), &all))
		text = textOf(all)
	}
	must.Do(a.t, os.MkdirAll(filepath.Dir(file), 0o700))
	must.Do(a.t, os.WriteFile(file, []byte(text), 0o600))
}

// installHook writes the block of deploy/agents.md to the file that it names, with the rules of the
// chat in place of a file's.
func (a hooked) installHook() {
	a.t.Helper()
	page := must.Get(os.ReadFile("../../deploy/agents.md"))(a.t)
	blocks := regexp.MustCompile("(?m)^[^ ].*, `~/(.+)`:\n\n((?:    .*\n)+)")
	asks := regexp.MustCompile(`hook\W+check\W+` + a.name + `\b`)
	for _, found := range blocks.FindAllStringSubmatch(string(page), -1) {
		if asks.MatchString(found[2]) {
			chats := strings.NewReplacer("--policy", "--chat", "/etc/chatd/rules.yaml", string(a.c.ID))
			a.put(found[1], chats.Replace(found[2]))
			return
		}
	}
	a.t.Fatal("deploy/agents.md has no block for it")
}

func (a hooked) all() {
	closed, made := filepath.Join(a.c.Home, "closed/k"), filepath.Join(a.c.Home, "made")
	refused := "Access denied: " + closed + " blocked by policy (deny ~/closed/**"
	for _, asked := range []string{"run: touch made; cat closed/k", a.reads(closed), a.reads("closed/k")} {
		if got := a.asks(asked, a.env); !strings.Contains(got, refused) || exists(made)() {
			a.t.Errorf("%s: made %v, the model is told %s", asked, exists(made)(), got)
		}
	}
	if got := a.asks(a.reads(filepath.Join(a.c.Home, "open/k")), a.env); !strings.Contains(got, "open to all") {
		a.t.Errorf("an open file: the model is told %s", got)
	}
	asked := "run: touch made; cat open/k"
	without := append(a.env, "PATH=/usr/local/bin:/usr/bin:/bin")
	if got := a.asks(asked, without); exists(made)() {
		a.t.Errorf("without chatd: made, the model is told %s", got)
	}
	if got := a.asks(asked, a.env); !strings.Contains(got, "open to all") || !exists(made)() {
		a.t.Errorf("%s: made %v, the model is told %s", asked, exists(made)(), got)
	}
	must.Do(a.t, os.Remove(made))
}

// reads is a question upon which the model calls the tool that reads a file.
func (a hooked) reads(path string) string {
	read := hookedAgents[a.name].read
	return "call: " + read[0] + " " + textOf(object{read[1]: path})
}

// asks asks the agent once, and returns what its tool gave the model back.
func (a hooked) asks(text string, env []string) string {
	a.t.Helper()
	argv := append(hookedAgents[a.name].argv, text)
	cmd := exec.CommandContext(a.t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = a.c.Home, env
	cmd.Path = filepath.Join("/usr/local/bin", argv[0])
	out, err := cmd.CombinedOutput()
	_, results := a.m.take()
	expect.True(a.t, err == nil && len(results) == 1,
		"%q: %v, results %q, it says\n%s", argv, err, results, out)
	return strings.Join(results, "\n")
}
