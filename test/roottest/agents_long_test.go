//go:build long

package roottest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"github.com/chatd/chatd/test/npmtest"
)

// realAgent is an agent of npm's registry, and how it is driven.
type realAgent struct {
	pkg     string
	profile string
	start   string            // the command line
	program string            // what tmux calls it
	ready   string            // what the screen shows when its prompt is there
	kill    string            // ends it as a crash would
	adds    string            // what it adds itself to a text of several lines
	files   map[string]string // its settings, in the home; @model@ is modelURL
}

// realAgents are started with what an operator would give them: no dialogs, no updates, no
// telemetry, no sandbox of their own, and the server as their model.
var realAgents = map[string]realAgent{
	"claude": {pkg: "@anthropic-ai/claude-code", profile: "agent", start: "claude", program: "claude", ready: `^❯`, kill: "pkill -9 -x claude", files: map[string]string{
		".claude.json": `{"hasCompletedOnboarding": true, "theme": "dark",
"customApiKeyResponses": {"approved": ["@approved@"]}}`,
		// It asks once about a key that it finds, unless the last 20 characters are here.
		".bashrc":               `sed -i "s/@approved@/${ANTHROPIC_API_KEY: -20}/" ~/.claude.json`,
		".claude/settings.json": `{"permissions": {"defaultMode": "bypassPermissions"}, "skipDangerousModePermissionPrompt": true}`,
	}},
	"codex": {pkg: "@openai/codex", profile: "agent-large", start: "codex", program: "node", ready: `^› `, kill: "pkill -9 -x node; pkill -9 -x codex", files: map[string]string{
		".codex/config.toml": `model = "gpt-5"
model_provider = "scripted"
sandbox_mode = "danger-full-access"
approval_policy = "never"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "@model@/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[analytics]
enabled = false
`}},
	"gemini": {pkg: "@google/gemini-cli", profile: "agent", start: "gemini --yolo", program: "node", ready: `Type your message`, kill: "pkill -9 -x node", files: map[string]string{
		".gemini/settings.json": `{"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}}, "model": {"name": "gemini-2.5-flash"},
"general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false}, "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false}}`,
	}},
	"pi": {pkg: "@mariozechner/pi-coding-agent", profile: "agent", start: "pi", program: "pi", ready: `\(auto\).*scripted`, kill: "pkill -9 -x pi", files: map[string]string{
		".pi/agent/settings.json": `{"defaultProvider": "scripted", "defaultModel": "scripted"}`,
		".pi/agent/models.json": `{"providers": {"scripted": {"baseUrl": "@model@/v1",
"api": "openai-completions",
"apiKey": "OPENAI_API_KEY", "models": [{"id": "scripted", "name": "Scripted",
"reasoning": false, "input": ["text"], "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}, "contextWindow": 128000, "maxTokens": 4096}]}}}`,
	}},
	"opencode": {pkg: "opencode-ai", profile: "agent-large", start: "opencode", program: "opencode", ready: `Ask anything`, kill: "pkill -9 -x opencode", adds: " ", files: map[string]string{
		".config/opencode/opencode.json": `{"autoupdate": false, "share": "disabled", "model": "scripted/scripted", "small_model": "scripted/scripted",
"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "Scripted",
"options": {"baseURL": "@model@/v1", "apiKey": "{env:OPENAI_API_KEY}"}, "models": {"scripted": {"name": "Scripted"}}}}}`,
	}},
}

// agentEnv is the environment that a profile for these agents has.
const agentEnv = `{ANTHROPIC_BASE_URL: "@model@", GOOGLE_GEMINI_BASE_URL: "@model@",
      DISABLE_AUTOUPDATER: "1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", CLAUDE_CODE_SANDBOXED: "1",
      PI_OFFLINE: "1", OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1"}`

// overlayUsrLocal makes /usr/local writable for this test alone: nothing of it is seen by the
// machine.
func overlayUsrLocal(t *testing.T) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("/srv", ".usrlocal"))(t)
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	must.Do(t, errors.Join(os.Chmod(dir, 0o755), os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)))
	must.Do(t, unix.Mount("overlay", "/usr/local", "overlay", 0, "lowerdir=/usr/local,upperdir="+upper+",workdir="+work))
	t.Cleanup(func() { must.Do(t, errors.Join(unix.Unmount("/usr/local", unix.MNT_DETACH), os.RemoveAll(dir))) })
}

// installAgents does what an operator does: npm install -g, as root, of which chats see /usr/local.
func installAgents(t *testing.T, packages ...string) {
	t.Helper()
	if os.Getenv("CHATD_TEST_LONG") == "" {
		t.Skip("NOT TRIED: want CHATD_TEST_LONG=1, see test/all agents")
	}
	overlayUsrLocal(t)
	// npm runs in the network namespace of the tests' parent, because this one has no network.
	argv := []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", os.Getppid()), "npm", "install", "-g", "--prefix", "/usr/local", "--no-audit", "--no-fund"}
	npmtest.Install(t, "/", append(argv, packages...)...)
	versions := must.Get(exec.Command("npm", "ls", "-g", "--prefix", "/usr/local").Output())(t)
	t.Logf("installed: %s", versions)
}

// agentsDaemon is a chatd with the profiles for agents as they are shipped, and what an
// operator adds to them; more are further keys of these profiles.
func agentsDaemon(t *testing.T, more string) *daemon {
	t.Helper()
	opt := options(t)
	skeleton := filepath.Join(filepath.Dir(opt.State), "skeleton")
	for _, a := range realAgents {
		for name, text := range a.files {
			writeFile(t, filepath.Join(skeleton, name), strings.ReplaceAll(text, "@model@", modelURL), 0o644)
		}
	}
	extra := "dns_servers: [" + outsideAddr + "]\nsecrets:\n"
	for _, k := range modelKeys {
		file := filepath.Join(filepath.Dir(opt.State), "secret-"+k.secret)
		must.Do(t, os.WriteFile(file, []byte(k.value+"\n"), 0o600))
		extra += fmt.Sprintf("  %s: {file: %s, hosts: ['api.example.test:8443'], header: '%s', "+
			"env: %s}\n", k.secret, file, k.header, k.env)
	}
	extra += "profiles:\n"
	for _, name := range []string{"agent", "agent-large"} {
		extra += fmt.Sprintf("  %s:\n    egress: ['api.example.test:8443']\n"+
			"    secrets: [anthropic, openai, gemini]\n    skeleton: %s\n    env: %s\n%s",
			name, skeleton, strings.ReplaceAll(agentEnv, "@model@", modelURL), more)
	}
	return startDaemon(t, opt, "", extra)
}

// TestLongAgents: agents as they are published are started, asked, and read through the API, in
// the profiles that are shipped for them. Their key is a secret of chatd: the model's server gets
// the value, and the chat has it nowhere.
func TestLongAgents(t *testing.T) {
	alone(t) // what it measures is in deploy/agents.md
	var packages []string
	for _, a := range realAgents {
		packages = append(packages, a.pkg)
	}
	installAgents(t, packages...)
	m := newModel(t)
	d := agentsDaemon(t, "")
	for name, a := range realAgents {
		t.Run(name, func(t *testing.T) {
			c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: name, Profile: a.profile}))(t)
			drivenAgent{t: t, d: d, c: c, m: m, agent: a}.all()
		})
	}
}

// drivenAgent is an agent in a chat.
type drivenAgent struct {
	t     *testing.T
	d     *daemon
	c     chat.Chat
	m     *model
	agent realAgent
}

func (a drivenAgent) all() {
	began := time.Now()
	a.start()
	a.measure("prompt", began)
	began = time.Now()
	a.asks("one line")
	a.measure("answer", began)
	a.asks("first line\nsecond 'line'; touch ~/ran\n\nfourth line")
	// As bridges have it: what begins with ! or / would be the agent's own command.
	a.asks("bob: !no history, /no command, $(touch ~/ran) #none")
	a.waitsForQuiet()
	a.waitsForOutput()
	a.usesItsShell()
	a.measure("after a command", began)
	a.hasNoKey()
	a.hasEnded()
}

// start types the command line, and waits for the agent's own prompt.
func (a drivenAgent) start() {
	a.t.Helper()
	got := a.typed(chat.Input{Text: a.agent.start, Enter: true, OnlyIf: &chat.OnlyIf{Prompt: chat.PromptPresent}},
		chat.Wait{Until: chat.UntilScreen, Pattern: a.agent.ready, Quiet: chat.Duration(2 * time.Second)})
	must.True(a.t, got.Until == chat.UntilScreen,
		"it does not come to its prompt, until %s:\n%s", got.Until, got.Plain)
	s, err := a.d.Screen(a.t.Context(), a.c.ID)
	if must.Do(a.t, err); s.Program != a.agent.program {
		a.t.Errorf("%q is in front, want %q", s.Program, a.agent.program)
	}
}

// typed types with a wait of ten minutes, which only a hang can reach.
func (a drivenAgent) typed(in chat.Input, w chat.Wait) chat.Typed {
	a.t.Helper()
	w.Max = chat.MaxWait
	in.Wait = &w
	return must.Get(a.d.InputWait(a.t.Context(), a.c.ID, in))(a.t)
}

// message is a text for the agent alone.
func (a drivenAgent) message(text string) chat.Input {
	return chat.Input{Text: text, Enter: true, OnlyIf: &chat.OnlyIf{Prompt: chat.PromptAbsent, Program: a.agent.program}}
}

// askedOnce holds what the model was asked since the last time against one text.
func (a drivenAgent) askedOnce(text string, got chat.Typed) {
	a.t.Helper()
	asked, _ := a.m.take()
	expect.True(a.t, slices.Equal(asked, []string{text}),
		"the model was asked %q, want once %q; until %s:\n%s", asked, text, got.Until, got.Plain)
	if answer := answerTo(text); !strings.Contains(got.Plain, answer) || strings.ContainsAny(got.Plain, "\x1b\r") {
		a.t.Errorf("the answer, until %s, has no %s, or is no plain text:\n%q", got.Until, answer, got.Plain)
	}
}

// asks submits a text and reads the answer.
func (a drivenAgent) asks(text string) {
	a.t.Helper()
	want := text
	if strings.Contains(text, "\n") {
		want += a.agent.adds
	}
	a.m.take()
	got := a.typed(a.message(text), chat.Wait{Until: chat.UntilScreen, Pattern: answerTo(want), Quiet: chat.Duration(time.Second)})
	a.askedOnce(want, got)
}

// waitsForQuiet: an agent whose model thinks is not taken for one that has said all.
func (a drivenAgent) waitsForQuiet() {
	a.t.Helper()
	const text = "answer slowly"
	a.m.take()
	a.askedOnce(text, a.typed(a.message(text), chat.Wait{Until: chat.UntilQuiet, Quiet: chat.Duration(slowly / 2)}))
}

// waitsForOutput: the first sign of life comes before the answer.
func (a drivenAgent) waitsForOutput() {
	a.t.Helper()
	const text = "answer slowly again"
	a.m.take()
	got := a.typed(a.message(text), chat.Wait{Until: chat.UntilOutput})
	expect.True(a.t, got.Until == chat.UntilOutput && !strings.Contains(got.Plain, answerTo(text)),
		"output: until %s:\n%s", got.Until, got.Plain)
	answered := func() bool {
		s, err := a.d.Screen(a.t.Context(), a.c.ID)
		return err == nil && strings.Contains(s.Text, answerTo(text))
	}
	until(a.t, "the answer to "+text, answered)
	asked, _ := a.m.take()
	expect.True(a.t, slices.Equal(asked, []string{text}), "the model was asked %q, want once %q", asked, text)
}

// usesItsShell: a command that the model wants runs in the chat, as the chat.
func (a drivenAgent) usesItsShell() {
	a.t.Helper()
	a.m.take()
	got := a.typed(a.message(`run: id -un | tee ~/who; test -e ~/ran && echo ran`), chat.Wait{Until: chat.UntilScreen, Pattern: answerTo("a tool"), Quiet: chat.Duration(time.Second)})
	asked, results := a.m.take()
	if len(asked) != 1 || len(results) != 1 || !strings.Contains(results[0], a.c.User) || strings.Contains(results[0], "ran") {
		a.t.Errorf("asked %q, its shell gave %q, want %s; until %s:\n%s", asked, results, a.c.User, got.Until, got.Plain)
	}
	expect.Equal(a.t, string(must.Get(os.ReadFile(filepath.Join(a.c.Home, "who")))(a.t)), a.c.User+"\n",
		"its shell wrote")
}

// hasNoKey: the agent's files, its processes and their environment have placeholders alone.
func (a drivenAgent) hasNoKey() {
	a.t.Helper()
	for _, r := range a.m.withoutKey() {
		a.t.Logf("the model's server was asked without a key: %s", r)
	}
	for _, k := range modelKeys {
		begin := k.value[:14]
		r := must.Get(a.d.Run(a.t.Context(), a.c.ID, chat.RunSpec{Command: `grep -rlsF -e ` + begin +
			` ~ /etc /opt /run /tmp /var/tmp /dev/shm; env | grep -F ` + begin +
			`; env | grep -c chatd-secret-`}))(a.t)
		expect.True(a.t, r.Stdout == fmt.Sprintf("%d\n", len(modelKeys)),
			"the chat has %s: %+v", k.secret, r)
		for _, pid := range pidsOf(a.c.UID) {
			for _, what := range []string{"environ", "cmdline"} {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what))
				if err == nil && strings.Contains(string(b), begin) {
					a.t.Errorf("process %d of the chat has %s", pid, k.secret)
				}
			}
		}
	}
}

// hasEnded: a message for an agent that is gone is refused, and without the condition it is run.
func (a drivenAgent) hasEnded() {
	a.t.Helper()
	must.Get(a.d.Run(a.t.Context(), a.c.ID, chat.RunSpec{Command: a.agent.kill + "; true"}))(a.t)
	ran := exists(filepath.Join(a.c.Home, "ran"))
	until(a.t, "the shell is in front", func() bool {
		s, err := a.d.Screen(a.t.Context(), a.c.ID)
		return err == nil && s.Program == "bash"
	})
	for _, cond := range []chat.OnlyIf{{Prompt: chat.PromptAbsent}, {Program: a.agent.program}} {
		in := chat.Input{Text: "touch ~/ran", Enter: true, OnlyIf: &cond}
		expect.Is(a.t, a.d.Input(a.t.Context(), a.c.ID, in), chat.ErrConflict,
			"a message for an agent that has ended, if %s", &cond)
	}
	if _, err := a.d.Run(a.t.Context(), a.c.ID, chat.RunSpec{Command: "sleep 1"}); err != nil || ran() {
		a.t.Errorf("it was run as a command: %v, %v", ran(), err)
	}
	got := a.typed(chat.Input{Text: "touch ~/ran", Enter: true}, chat.Wait{Until: chat.UntilPrompt})
	expect.True(a.t, ran() && got.Until == chat.UntilPrompt,
		"without a condition the message is no command: until %s:\n%s", got.Until, got.Plain)
}

// measure logs what deploy/agents.md says.
func (a drivenAgent) measure(what string, began time.Time) {
	c := must.Get(a.d.Get(a.t.Context(), a.c.ID))(a.t)
	u := c.Usage
	a.t.Logf("%s: %.1f s, memory now %d, peak %d MiB, %d pids, %d forks refused, %d OOM kills, throttled %d times", what,
		time.Since(began).Seconds(), u.MemoryBytes>>20, u.MemoryPeak>>20, u.Pids, u.PidsRefused, u.OOMKills, u.Throttled)
}

// object is a JSON object.
type object = map[string]any

// model is a scripted server of models. It speaks the streaming part of four protocols: Anthropic
// Messages, OpenAI Responses and Chat Completions, and Gemini generateContent. A question that
// has "slowly" in it is answered after a while, one that begins with "run: " by a call of the
// agent's shell tool, and one that begins with "call: " by a call of the tool that it names.
type model struct {
	mu      sync.Mutex
	asked   []string // texts of the conversation, as the agent's requests ended with them
	results []string // what the agent's tool gave back
	refused []string // requests without a key
}

// slowly is how long an answer takes whose question wants it so.
const slowly = 8 * time.Second

// modelURL is where it is.
const modelURL = "https://api.example.test:8443"

// modelKeys are the keys that it takes, and where it looks for each; agents have the variables of
// the secrets.
var modelKeys = []struct{ secret, env, header, value string }{
	{"anthropic", "ANTHROPIC_API_KEY", "x-api-key: $", "sk-ant-real-0123456789abcdefghij"},
	{"openai", "OPENAI_API_KEY", "Authorization: Bearer $", "sk-real-0123456789abcdefghijklmn"},
	{"gemini", "GEMINI_API_KEY", "x-goog-api-key: $", "AIza-real-0123456789abcdefghijkl"},
}

// newModel starts one on the outside. This host trusts its certificate.
func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	serveSecure(t, newInternet(t), "8443", m, "api.example.test")
	return m
}

// hasKey reports whether a request has one of the keys in its place.
func hasKey(r *http.Request) bool {
	for _, k := range modelKeys {
		name, form, _ := strings.Cut(k.header, ": ")
		if r.Header.Get(name) == strings.Replace(form, "$", k.value, 1) {
			return true
		}
	}
	return false
}

// take returns what was asked and what tools gave back since the last call.
func (m *model) take() (asked, results []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked, results = m.asked, m.results
	m.asked, m.results = nil, nil
	return asked, results
}

// withoutKey returns the requests since the last call that had no key.
func (m *model) withoutKey() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.refused
	m.refused = nil
	return all
}

// answerTo is what the model says to a text of the conversation: a word that neither the question
// nor the screen before it has.
func answerTo(text string) string {
	sum := 0
	for _, b := range []byte(text) {
		sum = (sum*31 + int(b)) % 1_000_003
	}
	return fmt.Sprintf("Answer-%06d.", sum)
}

// reply is what a request is answered by: a text, or a call of a tool with its arguments.
type reply struct {
	text    string
	tool    string
	command object
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !hasKey(r) {
		m.mu.Lock()
		m.refused = append(m.refused, fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header))
		m.mu.Unlock()
		http.Error(w, `{"error":{"message":"no key"}}`, http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(r.Body)
	var req object
	if err != nil || json.Unmarshal(body, &req) != nil {
		req = object{}
	}
	say := m.reply(req)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/messages"):
		sayAnthropic(w, say)
	case strings.HasSuffix(path, "/responses"):
		sayResponses(w, say)
	case strings.HasSuffix(path, "/chat/completions"):
		sayChat(w, say)
	case strings.HasSuffix(path, ":streamGenerateContent"):
		sayGemini(w, say)
	default:
		http.Error(w, `{"error":{"message":"not scripted"}}`, http.StatusNotFound)
	}
}

// reply records what was asked. A request without tools is for a title and the like.
func (m *model) reply(req object) reply {
	text, result := lastSaid(req)
	tools := toolsOf(req)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case len(tools) == 0:
		return reply{text: "A title"}
	case result:
		m.results = append(m.results, text)
		return reply{text: answerTo("a tool")}
	}
	m.asked = append(m.asked, text)
	if strings.Contains(text, "slowly") {
		m.mu.Unlock()
		time.Sleep(slowly)
		m.mu.Lock()
	}
	if call, found := strings.CutPrefix(text, "call: "); found {
		var args object
		name, said, _ := strings.Cut(call, " ")
		if json.Unmarshal([]byte(said), &args) == nil {
			return reply{tool: name, command: args}
		}
	}
	if command, found := strings.CutPrefix(text, "run: "); found {
		return callOf(tools, command)
	}
	return reply{text: answerTo(text)}
}

// callOf calls the agent's shell tool, by the name that it has for it.
func callOf(tools []object, command string) reply {
	for _, tool := range tools {
		switch name, _ := tool["name"].(string); name {
		case "Bash", "bash", "run_shell_command":
			return reply{tool: name, command: object{"command": command, "description": "as asked"}}
		case "exec_command":
			return reply{tool: name, command: object{"cmd": command}}
		}
	}
	return reply{text: "no tool"}
}

// toolsOf are the tools that a request offers, each with its name.
func toolsOf(req object) (tools []object) {
	for _, tool := range list(req["tools"]) {
		if f, ok := tool["function"].(object); ok {
			tool = f
		}
		tools = append(append(tools, tool), list(tool["functionDeclarations"])...)
	}
	return tools
}

// lastSaid is the end of the conversation: the user's text, or what a tool gave back.
func lastSaid(req object) (text string, result bool) {
	for _, key := range []string{"messages", "input", "contents"} {
		for _, said := range slices.Backward(list(req[key])) {
			if said["type"] == "function_call_output" {
				return textOf(said["output"]), true
			}
			if role := said["role"]; role == "tool" || role == "user" {
				return lastPart(said, role == "tool")
			}
		}
	}
	return "", false
}

// lastPart is the last part of a message.
func lastPart(said object, result bool) (string, bool) {
	parts := append(list(said["content"]), list(said["parts"])...)
	if len(parts) == 0 {
		return textOf(said["content"]), result
	}
	last := parts[len(parts)-1]
	if f, ok := last["functionResponse"].(object); ok {
		return textOf(f["response"]), true
	}
	if last["type"] == "tool_result" {
		return textOf(last["content"]), true
	}
	return textOf(last["text"]), result
}

// list is an array of objects.
func list(v any) (all []object) {
	items, _ := v.([]any)
	for _, item := range items {
		if o, ok := item.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

// textOf is a string as it is, and of anything else its JSON.
func textOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// event writes one server-sent event.
func event(w http.ResponseWriter, data object) {
	w.Header().Set("Content-Type", "text/event-stream")
	if name, ok := data["type"].(string); ok {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", textOf(data))
}

// sayAnthropic follows docs.anthropic.com/en/api/messages-streaming.
func sayAnthropic(w http.ResponseWriter, r reply) {
	event(w, object{"type": "message_start", "message": object{"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
		"content": []any{}, "usage": object{"input_tokens": 10, "output_tokens": 1}}})
	block, delta, stop := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": r.text}, "end_turn"
	if r.tool != "" {
		block = object{"type": "tool_use", "id": "toolu_1", "name": r.tool, "input": object{}}
		delta, stop = object{"type": "input_json_delta", "partial_json": textOf(r.command)}, "tool_use"
	}
	event(w, object{"type": "content_block_start", "index": 0, "content_block": block})
	event(w, object{"type": "content_block_delta", "index": 0, "delta": delta})
	event(w, object{"type": "content_block_stop", "index": 0})
	event(w, object{"type": "message_delta", "delta": object{"stop_reason": stop}, "usage": object{"output_tokens": 10}})
	event(w, object{"type": "message_stop"})
}

// sayResponses follows platform.openai.com/docs/api-reference/responses-streaming.
func sayResponses(w http.ResponseWriter, r reply) {
	item := object{"type": "message", "id": "item_1", "role": "assistant", "status": "completed", "content": []any{object{"type": "output_text", "text": r.text}}}
	if r.tool != "" {
		item = object{"type": "function_call", "id": "item_1", "call_id": "call_1", "name": r.tool, "arguments": textOf(r.command), "status": "completed"}
	}
	event(w, object{"type": "response.created", "response": object{"id": "resp_1"}})
	event(w, object{"type": "response.output_item.added", "output_index": 0, "item": item})
	if r.tool == "" {
		event(w, object{"type": "response.output_text.delta", "item_id": "item_1", "output_index": 0, "content_index": 0, "delta": r.text})
	}
	event(w, object{"type": "response.output_item.done", "output_index": 0, "item": item})
	event(w, object{"type": "response.completed", "response": object{"id": "resp_1", "output": []any{item},
		"usage": object{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}})
}

// sayChat follows platform.openai.com/docs/api-reference/chat/streaming.
func sayChat(w http.ResponseWriter, r reply) {
	delta, stop := object{"role": "assistant", "content": r.text}, "stop"
	if r.tool != "" {
		call := object{"index": 0, "id": "call_1", "type": "function", "function": object{"name": r.tool, "arguments": textOf(r.command)}}
		delta, stop = object{"role": "assistant", "tool_calls": []any{call}}, "tool_calls"
	}
	for _, choice := range []object{{"index": 0, "delta": delta}, {"index": 0, "delta": object{}, "finish_reason": stop}} {
		event(w, object{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": []any{choice}})
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// sayGemini follows ai.google.dev/api/generate-content.
func sayGemini(w http.ResponseWriter, r reply) {
	part := object{"text": r.text}
	if r.tool != "" {
		part = object{"functionCall": object{"name": r.tool, "args": r.command}}
	}
	event(w, object{"candidates": []any{object{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": []any{part}}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}})
}
