package roottest

import (
	"io"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRulesNoEnforcer: on a host where nothing can keep the rules a profile that has them is of
// no use, and keeps nothing else from working: no chat is made in it, no session starts, and
// neither a reload nor a start gives such rules to a chat that is there.
func TestRulesNoEnforcer(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, rules: [{deny: "**/*.conf", ops: [write]}]}`)
	opt.Enforce = "/bin/false"
	rules := opt.FileRules
	m, err := openManager(t.Context(), opt)
	must.Do(t, err) // not used yet
	cannot := func(what string, err error) {
		t.Helper()
		expect.Says(t, err,
			chat.ErrUnsupported, "cannot use the file rules of profile ruled: cannot start the enforcer", "%s", what)
	}
	for _, awake := range []*bool{nil, new(false)} {
		_, _, err = m.Create(operator(t.Context()), chat.Spec{ExternalID: "nobody keeps it", Profile: "ruled", Awake: awake})
		cannot("a chat with rules that nobody keeps", err)
	}
	h, err := m.Host(operator(t.Context()))
	if must.Do(t, err); h.Chats != 0 || len(h.Broken) > 0 || !strings.Contains(strings.Join(h.Findings, "\n"), "no chat with file rules can be made, in profiles ruled: cannot start the enforcer") {
		t.Errorf("doctor, of a host that can make no such chat: %d chats, broken %q, findings %q", h.Chats, h.Broken, h.Findings)
	}
	m.SetFileRules(map[string]*filerules.Policy{"ruled": policy(t, "access: {useDefaults: false, rules: [{deny: x, ops: [read]}]}")})
	c := create(t, m, "ruled", "ruled") // a deny that only the tools enforce needs no enforcer
	cannot("a reload of rules that nobody keeps", m.Reload(operator(t.Context()), rules))
	expect.Equal(t, tells(t, m, c, "echo awake"), "awake\n", "after a reload that was refused")
	m.SetFileRules(rules)
	if h, err := m.Host(operator(t.Context())); err != nil || !strings.Contains(strings.Join(h.Broken, "\n"), "cannot start the enforcer") {
		t.Errorf("doctor, of a chat whose rules nobody keeps: %q, %v", h.Broken, err)
	}
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	expect.Is(t, expect.Err(m.Wake(operator(t.Context()), c.ID)), chat.ErrUnsupported,
		"a session with rules that nobody keeps")
	must.Do(t, m.Close())
	m, err = openManager(t.Context(), opt)
	if err == nil {
		_ = m.Close()
	}
	cannot("a start with such a chat", err)
	opt.FileRules = nil
	open(t, opt) // reaps it
}

// TestRulesOfAnAgent: the agent that a chat is created with selects its section, for the
// kernel, the tools and explain; without one it is main's.
func TestRulesOfAnAgent(t *testing.T) {
	m := open(t, ruledOptions(t, `
access: {useDefaults: false, deny: ["~/work"]}
routing:
  agents:
    helper: {access: {rules: [{allow: "~/work"}]}}
    main: {access: {deny: ["~/mine"]}}
`))
	for agent, open := range map[string]string{"": "", "main": "", "helper": "work mine", "other": "mine"} {
		c, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "agent " + agent, Profile: "ruled", Agent: agent, Awake: new(false)})
		must.Do(t, err)
		for _, name := range []string{"work", "mine"} {
			putFile(t, c, name+"/f", secret)
		}
		wake(t, m, c.ID)
		for _, name := range []string{"work", "mine"} {
			want := strings.Contains(open, name)
			if got := tells(t, m, c, "cat %s/f", name); strings.Contains(got, secret) != want {
				t.Errorf("agent %q: cat %s/f says %q", agent, name, got)
			}
			begin := func(filewire.Answer) io.Writer { return io.Discard }
			_, err := m.ReadFile(operator(t.Context()), c.ID, filewire.ReadFile{Path: name + "/f"}, begin)
			e, err2 := m.Explain(operator(t.Context()), c.ID, chat.Question{Path: name + "/f", Op: "read"})
			expect.True(t, (err == nil) == want && err2 == nil && (e.Verdict == "allow") == want,
				"agent %q: read_file of %s/f: %v; explain: %+v, %v", agent, name, err, e, err2)
		}
		must.Do(t, m.Reap(operator(t.Context()), c.ID))
	}
}

// TestRulesByDefault: a profile with defaults and no file denies what rules deny by default,
// to tools and programs, and show says so; one without denies nothing.
func TestRulesByDefault(t *testing.T) {
	opt := ruledOptions(t, "access: {}")
	shipped := must.Get(filerules.Shipped([]string{"~/shared"}, []string{"~/copied/.env"}))(t)
	opt.FileRules["ruled"] = shipped
	m := open(t, opt)
	c := sleeper(t, m, "defaults")
	plain := create(t, m, "no defaults", "default")
	names := []string{".ssh/id", ".gnupg/ring", ".env", "secrets/k", "shared/a/.env", "copied/.env"}
	open := []string{"plain", "a/.env", "b/secrets/k"}
	for _, name := range append(open, names...) {
		putFile(t, c, name, secret)
		putFile(t, plain, name, secret)
	}
	wake(t, m, c.ID)
	for _, name := range names {
		refused(t, m, c, "cat %s", name)
		expect.Equal(t, tells(t, m, plain, "cat %s", name), secret, "without defaults %s says", name)
	}
	for _, name := range open {
		expect.Equal(t, tells(t, m, c, "cat %s", name), secret, "%s says", name)
	}
	if denied := oneVerdict(t, m, c, append(open, names...)); denied != 4*len(names) {
		t.Errorf("%d verdicts are denials, want %d", denied, 4*len(names))
	}
	for id, want := range map[chat.ID]string{c.ID: "built-in defaults: deny ~/.ssh/** ~/.gnupg/** ~/.env ~/secrets/** " +
		"~/shared/**/{.env,secrets/**,.ssh/**,.gnupg/**} ~/copied/.env", plain.ID: "none"} {
		expect.Equal(t, must.Get(m.Get(operator(t.Context()), id))(t).FileRules, want, "show says")
	}
}
