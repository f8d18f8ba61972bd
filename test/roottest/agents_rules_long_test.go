//go:build long

package roottest

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
	var packages []string
	for name := range hookedAgents {
		packages = append(packages, realAgents[name].pkg)
	}
	installAgents(t, packages...)
	opt := options(t)
	rules := filepath.Join(filepath.Dir(opt.State), "rules.yaml")
	writeFile(t, rules, "access: {useDefaults: false, deny: [~/closed/**]}\n", 0o600)
	d := startDaemon(t, opt, "", fmt.Sprintf("profiles: {ruled: {access_file: %s, commands: ['*']}}\n", rules))
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "hooked", Profile: "ruled"}))(t)
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
	writeFile(a.t, file, text, 0o600)
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
	got := a.asks(a.reads(filepath.Join(a.c.Home, "open/k")), a.env)
	expect.True(a.t, strings.Contains(got, "open to all"), "an open file: the model is told %s", got)
	asked := "run: touch made; cat open/k"
	without := append(a.env, "PATH=/usr/local/bin:/usr/bin:/bin")
	got = a.asks(asked, without)
	expect.True(a.t, !exists(made)(), "without chatd: made, the model is told %s", got)
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

// agentDoes is what an agent is asked to do: what its own sandbox would allow, and two acts that
// the chat's walls refuse.
const agentDoes = `"run: touch made; touch /usr/denied; cat .env"`

const (
	does          = `'touch made; touch /usr/denied; cat .env'`
	codexSandbox  = `codex sandbox -c 'sandbox_mode="`
	claudeSandbox = `claude --settings '{"sandbox": {"enabled": true`
)

const (
	shimSays   = `chatd: bwrap refused: a chat cannot hold containers or namespaces`
	kernelSays = `bwrap: No permissions to create (a )?new namespace`
)

// ownSandbox is a sandbox that an agent brings along, in a chat.
type ownSandbox struct {
	profile string
	// without is the command line with the settings of deploy/agents.md; srt has none that helps.
	without string
	with    []failing
}

// failing is a command line with the sandbox, and how it fails. Most agents exit 0.
type failing struct {
	command string
	exit    int
	says    string // a regular expression, for what it prints or tells its model
}

// weaker is srt's setting for containers: it goes without a /proc of its own, and no more.
const weaker = `echo '{"enableWeakerNestedSandbox": true,
"network": {"allowedDomains": [], "deniedDomains": []},
"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}' >~/weaker.json; `

// ownSandboxes are what deploy/agents.md says of them. Of bubblewrap chats have a shim, which
// refuses with a reason; codex takes its own copy, and PATH=/usr/bin meets the wall behind.
var ownSandboxes = map[string]ownSandbox{
	"codex": {"agent-large", `codex exec --skip-git-repo-check ` + agentDoes, []failing{
		{`codex exec --skip-git-repo-check -s workspace-write ` + agentDoes, 0, kernelSays},
		{`codex exec --skip-git-repo-check -s read-only ` + agentDoes, 0, kernelSays},
	}},
	"codex, alone": {"agent-large", codexSandbox + `danger-full-access"' -- sh -c ` + does, []failing{
		{codexSandbox + `workspace-write"' -- touch made`, 1, kernelSays},
		{codexSandbox + `workspace-write"' --enable use_legacy_landlock -- touch made`, 101,
			`filesystem-restricted execution requires bubblewrap`},
	}},
	"claude": {"agent", `claude -p ` + agentDoes, []failing{
		{claudeSandbox + `}}' -p ` + agentDoes, 0, shimSays},
		{claudeSandbox + `, "failIfUnavailable": true, "enableWeakerNestedSandbox": true}}' -p ` +
			agentDoes, 0, shimSays},
		{`PATH=/usr/bin:$PATH ` + claudeSandbox + `}}' -p ` + agentDoes, 0, kernelSays},
	}},
	"srt": {"agent", "", []failing{
		{`srt 'touch made'`, 126, shimSays},
		{weaker + `srt -s ~/weaker.json 'touch made'`, 126, shimSays},
		{weaker + `PATH=/usr/bin:$PATH srt -s ~/weaker.json 'touch made'`, 1, kernelSays},
	}},
	"gemini": {"agent", `gemini --yolo -p ` + agentDoes, []failing{
		{`gemini --yolo --sandbox -p ` + agentDoes, 1,
			`FatalSandboxError: Sandbox image '.*' is missing or could not be pulled`},
		{`sed -i 's/"security": {/"security": {"toolSandboxing": true, /' ~/.gemini/settings.json; ` +
			`gemini --yolo -p ` + agentDoes, 0, shimSays},
	}},
}

// TestLongAgentSandboxes: sandboxes of agents that want namespaces fail in a chat, with the
// command undone; with the settings of deploy/agents.md the agents work, and the chat's walls
// refuse what they may not. One of Landlock alone stands inside the chat's own.
func TestLongAgentSandboxes(t *testing.T) {
	packages := []string{"@anthropic-ai/sandbox-runtime"}
	for _, name := range []string{"claude", "codex", "gemini"} {
		packages = append(packages, realAgents[name].pkg)
	}
	installAgents(t, packages...)
	m := newModel(t)
	d := agentsDaemon(t, "    commands_add: [claude, codex, gemini, srt, socat, rg]\n")
	for name, s := range ownSandboxes {
		t.Run(name, func(t *testing.T) {
			a := trialIn(t, d, m, name, s.profile)
			if s.without != "" {
				a.works(s.without)
			}
			for _, with := range s.with {
				a.fails(with)
			}
		})
	}
	t.Run("landlock", func(t *testing.T) { trialIn(t, d, m, "landlock", "agent").confinesItself() })
}

// ownTrial is a chat in which a sandbox is tried.
type ownTrial struct {
	t *testing.T
	d *daemon
	c chat.Chat
	m *model
}

// trialIn makes the chat, with a file that the profile's default rules deny.
func trialIn(t *testing.T, d *daemon, m *model, name, profile string) ownTrial {
	t.Helper()
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: name, Profile: profile}))(t)
	must.Do(t, os.WriteFile(filepath.Join(c.Home, ".env"), []byte(secret), 0o644))
	return ownTrial{t, d, c, m}
}

// says runs a command line and returns its exit code, and what it and the agent's tool said.
func (a ownTrial) says(command string) (exit int, all string) {
	a.t.Helper()
	a.m.take()
	r := must.Get(a.d.Run(a.t.Context(), a.c.ID, chat.RunSpec{Command: "rm -f made; " + command}))(a.t)
	_, results := a.m.take()
	return r.Exit, r.Stdout + r.Stderr + strings.Join(results, "\n")
}

// made tells whether the command that was to be run has been run.
func (a ownTrial) made() bool { return exists(filepath.Join(a.c.Home, "made"))() }

// works: the command is run, and the chat's walls refuse what they have to.
func (a ownTrial) works(command string) {
	a.t.Helper()
	_, all := a.says(command)
	for _, want := range []string{"/usr/denied': Read-only file system", ".env: Permission denied"} {
		expect.True(a.t, strings.Contains(all, want), "%s: it does not say %s:\n%s", command, want, all)
	}
	if !a.made() || strings.Contains(all, strings.TrimSpace(secret)) {
		a.t.Errorf("%s: made %v, and it says\n%s", command, a.made(), all)
	}
}

// fails: the command is not run.
func (a ownTrial) fails(s failing) {
	a.t.Helper()
	exit, all := a.says(s.command)
	if exit != s.exit || a.made() || !regexp.MustCompile(s.says).MatchString(all) {
		a.t.Errorf("%s: exit %d, want %d; made %v; it says, want %s:\n%s",
			s.command, exit, s.exit, a.made(), s.says, all)
	}
}

// landlocked puts itself below one more set of Landlock's rules: the whole view to read and to
// execute, opened with the flags that it is given, and ~/may to write. The numbers are those of
// linux/landlock.h, for ABI 1.
const landlocked = `
import ctypes, os, struct, sys
libc, every = ctypes.CDLL(None, use_errno=True), 0x1fff
def call(*a):
    r = libc.syscall(*a)
    if r < 0: sys.exit("%s: %s" % (a[0], os.strerror(ctypes.get_errno())))
    return r
rules = call(444, struct.pack("Q", every), ctypes.c_size_t(8), 0)
for name, may in (("/", 0xd), (os.path.expanduser("~/may"), every)):
    try: fd = os.open(name, int(sys.argv[1]))
    except OSError as e: print(e); continue
    call(445, rules, 1, struct.pack("=Qi", may, fd), 0)
libc.prctl(38, 1, 0, 0, 0)
call(446, rules, 0)
os.execv("/bin/sh", ["sh", "-c", "touch ~/may/made; touch ~/made; echo began"])
`

// confinesItself: Landlock inside Landlock refuses what either refuses. A chat may not list /, so
// that a program which opens it for reading, and not with O_PATH, gets no rule for it.
func (a ownTrial) confinesItself() {
	a.t.Helper()
	must.Do(a.t, os.WriteFile(filepath.Join(a.c.Home, "landlocked.py"), []byte(landlocked), 0o644))
	for _, try := range []struct {
		flags int
		says  string
		may   bool
	}{
		{unix.O_PATH, "began", true},
		{unix.O_RDONLY, "Permission denied: '/'", false},
	} {
		_, all := a.says(fmt.Sprintf("rm -rf may; mkdir may; python3 -u landlocked.py %d", try.flags))
		may := exists(filepath.Join(a.c.Home, "may", "made"))()
		if may != try.may || a.made() || !strings.Contains(all, try.says) {
			a.t.Errorf("flags %#x: allowed and done %v, denied and done %v, it says\n%s",
				try.flags, may, a.made(), all)
		}
	}
}
