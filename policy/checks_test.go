package policy

import (
	"errors"
	"os"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filecall"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/orders"
	"github.com/chatd/chatd/sys"
)

// callOf is a file call of a tool.
func callOf(tool files.Tool, op files.Op, path string) *filecall.Call {
	return &filecall.Call{Tool: tool, Op: op, Path: path}
}

// TestAdmit: the caller's name is checked as the tools read it, and further names against the same
// rules, by where the chat's links lead.
func TestAdmit(t *testing.T) {
	w := newWorld(t, denySecret)
	for path, want := range map[string]bool{
		"secret": true, "a/../secret/x": true, w.chat.Home + "/secret": true,
		"~/secret": false, "a": false,
	} {
		d, err := w.Admit(w.chat, callOf(files.ReadFileTool, files.Read, path))
		must(t, err)
		if (d != nil) != want {
			t.Errorf("%s: %+v, want a denial: %t", path, d, want)
		}
	}
	call := callOf(files.ReadFileTool, files.Read, "a")
	if d, err := w.Admit(w.chat, call); d != nil || err != nil || len(call.Links) == 0 {
		t.Fatalf("%+v, %v, links %q", d, err, call.Links)
	}
	real := w.chat.Home + "/real"
	if call.Check(files.Read, real) != nil {
		t.Error("a path is denied to which no link leads")
	}
	var links []files.Link
	for n, name := range call.Links {
		if name == w.chat.Home+"/secret" {
			links = append(links, files.Link{N: n, To: real})
		}
	}
	must(t, call.Linked(links))
	if call.Check(files.Read, real) == nil {
		t.Errorf("the target of a denied link is allowed; links are %+v of %q", links, call.Links)
	}
}

// TestCheckRun: the paths of a run are checked if the profile has a guard.
func TestCheckRun(t *testing.T) {
	w := newWorld(t, denySecret)
	spec := chat.RunSpec{Argv: []string{"ls"}, Cwd: w.chat.Home + "/secret"}
	d, err := w.CheckRun(t.Context(), w.chat, spec)
	if err != nil || d == nil {
		t.Errorf("a denied directory: %+v, %v", d, err)
	}
	off := w.Profile(w.chat.Profile)
	off.Guard = chat.Guard{}
	next, err := w.WithProfiles(w.opt.Rules, map[string]chat.Profile{off.Name: off})
	must(t, err)
	w.Set(next)
	if d, err := w.CheckRun(t.Context(), w.chat, spec); err != nil || d != nil {
		t.Errorf("without a guard: %+v, %v", d, err)
	}
}

// TestNameRule: a denial by the kernel gets the rule that closes the path or, as the enforcer
// knows, another name of the file; others stay as they are.
func TestNameRule(t *testing.T) {
	w := newWorld(t, denySecret)
	w.answer = func(o orders.Order) orders.Answer {
		if string(o.Path) == w.chat.Home+"/linked" {
			return orders.Answer{By: []byte(w.chat.Home + "/secret")}
		}
		return orders.Answer{}
	}
	w.listen()
	for _, tt := range []struct {
		path, rule string
		asleep     bool
		want       bool
	}{
		{"secret", files.RuleKernel, false, true},
		{"secret", files.RuleKernel, true, true},
		{"linked", files.RuleKernel, false, true},
		{"linked", files.RuleKernel, true, false},
		{"open", files.RuleKernel, false, false},
		{"secret", "grants", false, false},
	} {
		init := w.init
		if tt.asleep {
			init = nil
		}
		d := &files.Denial{Rule: tt.rule, Place: "EACCES"}
		w.NameRule(t.Context(), w.chat, init, callOf(files.ReadFileTool, files.Read, tt.path), d)
		if named := d.Rule != tt.rule; named != tt.want || named && d.Errno != "EACCES" {
			t.Errorf("%+v becomes %+v", tt, d)
		}
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
			Init:    func() *sys.HeldProcess { return w.init },
			Resolve: func([]string) (map[string]string, error) { return nil, nil },
			Closed: func() (masked, leftOut []string) {
				return []string{w.chat.Home + "/secret"}, nil
			},
		}
		for path, denied := range map[string]bool{"secret": true, "linked": true, "open": false} {
			q := chat.Question{Op: "read", Path: "~/" + path}
			e, err := w.Explain(t.Context(), w.chat, q, in)
			must(t, err)
			if (e.Verdict == "deny") != denied {
				t.Errorf("%s: %+v", path, e)
			}
			shown := denied && rules == denySecret
			if (e.Rule != "") != shown || (len(e.KeptBy) == 2) != shown {
				t.Errorf("%s by the rules %s: %+v", path, rules, e)
			}
		}
		in.Resolve = func([]string) (map[string]string, error) { return nil, errors.New("no room") }
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
	asleep := func() *sys.HeldProcess { return nil }
	in := Inside{Init: asleep, Resolve: func(names []string) (map[string]string, error) {
		return map[string]string{
			home + "/link": home + "/secret", home + "/other": home + "/open",
		}, nil
	}}
	for name, want := range map[string]bool{
		"/secret": true, "/a/../secret": true, "/link": true, "/other": false, "/open": false,
	} {
		if r := w.RuleBehind(t.Context(), w.chat, home+name, in); (r != nil) != want {
			t.Errorf("%s: %v", name, r)
		}
	}
	in.Resolve = func([]string) (map[string]string, error) { return nil, os.ErrPermission }
	if r := w.RuleBehind(t.Context(), w.chat, home+"/link", in); r != nil {
		t.Errorf("links that cannot be resolved: %v", r)
	}
	w.SetRules(nil)
	in.Resolve = func([]string) (map[string]string, error) {
		t.Error("links are resolved for a chat without rules")
		return nil, nil
	}
	if r := w.RuleBehind(t.Context(), w.chat, home+"/secret", in); r != nil {
		t.Errorf("without rules: %v", r)
	}
}
