package policy

import (
	"errors"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// denied asks the rules that hold for a chat now, as a run does.
func denied(t *testing.T, p *InForce, c Chat, path string) bool {
	t.Helper()
	rules, err := p.Rules(c)
	must.Do(t, err)
	v, err := rules.Check(path, filerules.Bash)
	must.Do(t, err)
	return v.Denied()
}

// TestRulesAfterReload: nothing that was compiled before new rules were set is asked after it,
// not even what somebody began to compile before and is done with later.
func TestRulesAfterReload(t *testing.T) {
	w := newWorld(t, "access: {useDefaults: false, deny: ['~/old']}\n")
	p, c := w.InForce, w.chat
	old := p.book.Load()
	must.True(t, denied(t, p, c, "old") && !denied(t, p, c, "new"), "the first rules do not hold")
	p.SetRules(rulesOf(t, "access: {useDefaults: false, deny: ['~/new']}\n"))
	expect.True(t, !denied(t, p, c, "old") && denied(t, p, c, "new"),
		"a run is checked by the rules of before the reload")
	late := c
	late.ID, late.Home = "ffeeddccbbaa0099", "/h/ffeeddccbbaa0099"
	_, err := old.rules(late)
	must.Do(t, err)
	expect.True(t, !denied(t, p, late, "old") && denied(t, p, late, "new"),
		"a late compilation has left old rules behind")
	p.SetRules(nil)
	expect.True(t, !denied(t, p, c, "new") && !p.Enforced(c) && len(p.Closed(c)) == 0,
		"rules that were taken away hold")
}

// TestRedact: a profile with vague messages tells the rule to operators and to nobody else.
func TestRedact(t *testing.T) {
	for _, messages := range []string{"vague", "verbose"} {
		w := newWorld(t, "access: {messages: "+messages+", deny: ['~/secret']}\n")
		for _, role := range []chat.Role{chat.RoleBridge, chat.RoleOperator} {
			ctx := chat.WithCaller(t.Context(), chat.Caller{Name: "ada", Role: role})
			var d *filewire.Denial
			err := w.Redact(ctx, w.chat.Profile, &filewire.Denial{
				Tool: filewire.ReadFileTool, Path: "/p", Rule: "deny ~/secret", Place: "rules:1",
				Layer: string(filerules.LayerGlobalDeny),
			})
			want := messages == "verbose" || role == chat.RoleOperator
			expect.True(t, errors.As(err, &d) && (d.Rule != "") == want && (d.Path != "") == want,
				"%s messages for %s: %+v", messages, role, d)
		}
	}
}

// TestForShims: the shims check against the guard in force, and the rules of the chat's agent.
func TestForShims(t *testing.T) {
	w := newWorld(t, "access: {useDefaults: false, deny: ['~/secret']}\n")
	before := w.ForShims(w.chat)
	off := w.opt.Profiles[w.chat.Profile]
	off.Guard = chat.Guard{}
	next, err := w.WithProfiles(w.opt.Rules, map[string]chat.Profile{off.Name: off})
	must.Do(t, err)
	w.Set(next)
	after := w.ForShims(w.chat)
	for _, text := range []string{"secret", w.chat.Home} {
		expect.True(t, has(before, text) && has(after, text), "%q is not in %s and %s", text, before, after)
	}
	expect.True(t, string(before) != string(after), "the shims check against the guard of before")
}
