package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const denySecret = "access: {useDefaults: false, deny: ['~/secret']}\n"

// TestCheckChangesNothing: neither a policy that is refused nor one that was only checked is in
// force.
func TestCheckChangesNothing(t *testing.T) {
	w := newWorld(t, denySecret)
	w.listen()
	next := w.WithRules(rulesOf(t, "access: {useDefaults: false, deny: ['~/other']}\n"))
	must.Do(t, w.Check(t.Context(), next, []Chat{w.chat}))
	bad := w.WithRules(rulesOf(t, "access: {useDefaults: false, deny: [/usr]}\n"))
	expect.True(t, w.Check(t.Context(), bad, nil) != nil, "rules that close /usr were not refused")
	expect.Is(t, expect.Err(w.WithProfiles(nil, nil)), chat.ErrInvalid, "a config without the profile")
	expect.True(t, denied(t, w.InForce, w.chat, "secret") && !denied(t, w.InForce, w.chat, "other"),
		"a policy is in force before it is set")
	w.Set(next)
	expect.True(t, !denied(t, w.InForce, w.chat, "secret") && denied(t, w.InForce, w.chat, "other"),
		"a policy that was set is not in force")
}

// TestKeysInForce: a reload of the rules alone leaves the keys, one with profiles replaces them,
// and other keys of a profile wait for a restart.
func TestKeysInForce(t *testing.T) {
	w := newWorld(t, denySecret)
	first := w.Profile(chat.DefaultProfile)
	other := first
	other.Guard, other.ToolsOff, other.AllowNetlink = chat.Guard{}, []string{chat.ToolExec}, true
	next, err := w.WithProfiles(nil, map[string]chat.Profile{other.Name: other})
	must.Do(t, err)
	before := w.WithRules(w.opt.Rules).Detail()
	w.Set(next)
	w.Set(w.WithRules(rulesOf(t, denySecret)))
	now := w.Profile(chat.DefaultProfile)
	expect.True(t, !now.Guard.On() && now.CheckTool(chat.ToolExec) != nil && !now.AllowNetlink, "%+v", now)
	after := w.WithRules(w.opt.Rules).Detail()
	expect.True(t, before["rules"] == after["rules"] && before["guards"] != after["guards"],
		"digests before %v, after %v", before, after)
	if gone := w.Profile("gone"); gone.Name != "" || len(gone.Egress) > 0 {
		t.Errorf("a profile that is not configured: %+v", gone)
	}
}

// TestCheckFirst: what cannot be used is refused at the start, and a warning is said once.
func TestCheckFirst(t *testing.T) {
	w := newWorld(t, "access: {rules: [{allow: '/x'}]}")
	w.opt.Rules["other"] = w.File(chat.DefaultProfile)
	w.log.Reset()
	must.Do(t, w.CheckFirst())
	if n := strings.Count(w.log.String(), "level=WARN"); n != 1 {
		t.Errorf("one warning of two profiles is in the log %d times:\n%s", n, w.log.String())
	}
	w.opt.Rules = rulesOf(t, "access: {useDefaults: false, deny: [/usr]}\n")
	expect.True(t, w.CheckFirst() != nil, "rules that close /usr were not refused")
	bad := w.opt.Profiles[chat.DefaultProfile]
	bad.Guard.CustomDenyPatterns = []chat.Pattern{{Text: "("}}
	w.opt.Profiles[chat.DefaultProfile] = bad
	if err := w.CheckFirst(); err == nil || !strings.Contains(err.Error(), "guard") {
		t.Errorf("a guard that cannot be read: %v", err)
	}
}

// TestCount: rules are counted in the trees of the caller, at the start and at a reload.
func TestCount(t *testing.T) {
	w := newWorld(t, denySecret)
	w.listen()
	var asked []string
	w.opt.Trees = func(profile string) []chat.Exposed {
		asked = append(asked, profile)
		return nil
	}
	must.Do(t, w.Count(t.Context()), w.Check(t.Context(), w.WithRules(w.opt.Rules), nil))
	expect.True(t, slices.Equal(asked, []string{chat.DefaultProfile, chat.DefaultProfile}),
		"the trees of %q were counted in", asked)
	for _, tree := range SystemTrees() {
		expect.True(t, tree.Source == tree.Target && tree.Mode == chat.ReadOnly, "%+v", tree)
	}
}

// TestRaise: the enforcer is started for a chat whose rules need it, and for no other.
func TestRaise(t *testing.T) {
	const none, some = noRules, denySecret
	raise := func(w *world) error { return w.Raise(t.Context(), []Chat{w.chat}) }
	for _, tt := range []struct {
		name  string
		rules string
		raise func(*world) error
		want  bool
	}{
		{"no chat", some, func(w *world) error { return w.Raise(t.Context(), nil) }, false},
		{"a chat", some, raise, true},
		{"no rules", none, raise, false},
		{"a reload, no chat", none, func(w *world) error {
			return w.Check(t.Context(), w.WithRules(rulesOf(t, some)), nil)
		}, false},
		{"a reload", none, func(w *world) error {
			return w.Check(t.Context(), w.WithRules(rulesOf(t, some)), []Chat{w.chat})
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.rules)
			const cannot = "cannot use the file rules of profile default: "
			if err := tt.raise(w); (err != nil) != tt.want ||
				err != nil && !strings.HasPrefix(err.Error(), cannot) {
				t.Errorf("no enforcer can be started: %v, want an error: %t", err, tt.want)
			}
			w.listen()
			must.Do(t, tt.raise(w))
			expect.Equal(t, len(w.asked()) > 0, tt.want, "the enforcer was looked for")
		})
	}
}

// TestFindings: a host without an enforcer names the profiles in which it can make no chats.
func TestFindings(t *testing.T) {
	w := newWorld(t, denySecret)
	if f := w.Findings(t.Context()); len(f) != 1 || !strings.Contains(f[0], "profiles default: ") {
		t.Errorf("without an enforcer: %q", f)
	}
	w.listen()
	if f := w.Findings(t.Context()); f != nil || !slices.Equal(w.asked(), []string{orders.Probe}) {
		t.Errorf("with an enforcer: %q", f)
	}
	w.SetRules(map[string]*filerules.Policy{})
	if f := w.Findings(t.Context()); f != nil || w.asked() != nil {
		t.Errorf("without rules: %q", f)
	}
}
