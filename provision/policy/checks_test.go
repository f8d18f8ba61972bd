package policy

import (
	"errors"
	"os"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// callOf is a file call of a tool.
func callOf(tool filewire.Tool, op filewire.Op, path string) *filecall.Call {
	return &filecall.Call{Tool: tool, Op: op, Path: path}
}

// TestAdmit: the caller's name is checked as the tools read it, and a denial that the tool reports is
// one by a rule that there is.
func TestAdmit(t *testing.T) {
	w := newWorld(t, denySecret)
	for path, want := range map[string]bool{
		"secret": true, "a/../secret/x": true, w.chat.Home + "/secret": true,
		"~/secret": true, "a": false,
	} {
		d, err := w.Admit(t.Context(), w.chat, nil, callOf(filewire.ReadFileTool, filewire.Read, path))
		must.Do(t, err)
		expect.True(t, (d != nil) == want, "%s: %+v, want a denial: %t", path, d, want)
	}
	call := callOf(filewire.ReadFileTool, filewire.Read, "a")
	if d, err := w.Admit(t.Context(), w.chat, nil, call); d != nil || err != nil || len(call.Rules.Compiled) == 0 {
		t.Fatalf("%+v, %v, rules %+v", d, err, call.Rules)
	}
	real := w.chat.Home + "/secret"
	d, err := w.Admit(t.Context(), w.chat, nil, callOf(filewire.ReadFileTool, filewire.Read, real))
	must.Do(t, err)
	reported := *d
	reported.Message, reported.Path = "made up", w.chat.Home+"/real"
	by := call.Denies(&reported)
	expect.True(t, by != nil && by.Rule == d.Rule && by.Message != "made up",
		"the denial that the tool reports is %+v, and becomes %+v", d, by)
	reported.Rule = "deny everything"
	if by := call.Denies(&reported); by != nil {
		t.Errorf("a rule that there is not denies: %+v", by)
	}
}

// TestCheckRun: the paths of a run are checked if the profile has a guard.
func TestCheckRun(t *testing.T) {
	w := newWorld(t, denySecret)
	spec := chat.RunSpec{Argv: []string{"ls"}, Cwd: w.chat.Home + "/secret"}
	d, err := w.CheckRun(t.Context(), w.chat, spec)
	expect.True(t, err == nil && d != nil, "a denied directory: %+v, %v", d, err)
	off := w.Profile(w.chat.Profile)
	off.Guard = chat.Guard{}
	next, err := w.WithProfiles(w.opt.Rules, map[string]chat.Profile{off.Name: off})
	must.Do(t, err)
	w.Set(next)
	if d, err := w.CheckRun(t.Context(), w.chat, spec); err != nil || d != nil {
		t.Errorf("without a guard: %+v, %v", d, err)
	}
}

// TestExplain: the verdict is that of the rules, then that of the kernel by another name; what
// enforces it is for callers who may know the rule.
func TestExplain(t *testing.T) {
	const terse = "access: {messages: vague, useDefaults: false, deny: ['~/secret']}\n"
	for _, rules := range []string{denySecret, terse} {
		w := newWorld(t, rules)
		w.answer = func(o orders.Order) orders.Answer {
			if string(o.Path) == w.chat.Home+"/linked" {
				return orders.Answer{By: []byte(w.chat.Home + "/secret")}
			}
			return orders.Answer{}
		}
		w.listen()
		in := Inside{
			Init:    func() *sys.ProcessHandle { return w.init },
			Resolve: func([]string) (map[string]filewire.Link, error) { return nil, nil },
			Closed: func() (masked, leftOut []string) {
				return []string{w.chat.Home + "/secret"}, nil
			},
		}
		for path, denied := range map[string]bool{"secret": true, "linked": true, "open": false} {
			q := chat.Question{Op: "bash", Path: "~/" + path}
			e, err := w.Explain(t.Context(), w.chat, q, in)
			must.Do(t, err)
			expect.True(t, (e.Verdict == "deny") == denied, "%s: %+v", path, e)
			shown := denied && rules == denySecret
			expect.True(t, (e.Rule != "") == shown && (len(e.KeptBy) == 2) == shown,
				"%s by the rules %s: %+v", path, rules, e)
		}
		in.Resolve = func([]string) (map[string]filewire.Link, error) { return nil, errors.New("no room") }
		q := chat.Question{Op: "read", Path: "~/open"}
		if _, err := w.Explain(t.Context(), w.chat, q, in); err == nil {
			t.Error("links that could not be resolved are taken for none")
		}
	}
}

// TestRuleBehind: a name is closed by its own rule, or by that of the target of the chat's links.
func TestRuleBehind(t *testing.T) {
	w := newWorld(t, denySecret)
	home := w.chat.Home
	asleep := func() *sys.ProcessHandle { return nil }
	in := Inside{Init: asleep, Resolve: func(names []string) (map[string]filewire.Link, error) {
		return map[string]filewire.Link{
			home + "/link": {To: home + "/secret"}, home + "/other": {To: home + "/open"},
		}, nil
	}}
	for name, want := range map[string]bool{
		"/secret": true, "/a/../secret": true, "/link": true, "/other": false, "/open": false,
	} {
		if r := w.RuleBehind(t.Context(), w.chat, home+name, in); (r != nil) != want {
			t.Errorf("%s: %v", name, r)
		}
	}
	in.Resolve = func([]string) (map[string]filewire.Link, error) { return nil, os.ErrPermission }
	if r := w.RuleBehind(t.Context(), w.chat, home+"/link", in); r != nil {
		t.Errorf("links that cannot be resolved: %v", r)
	}
	w.SetRules(nil)
	in.Resolve = func([]string) (map[string]filewire.Link, error) {
		t.Error("links are resolved for a chat without rules")
		return nil, nil
	}
	if r := w.RuleBehind(t.Context(), w.chat, home+"/secret", in); r != nil {
		t.Errorf("without rules: %v", r)
	}
}
