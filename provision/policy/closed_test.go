package policy

import (
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestClosedPaths: only what a pattern without wildcards closes, with no exception inside, is
// closed as a whole; what enforces a denial is named by where the path is.
func TestClosedPaths(t *testing.T) {
	const text = "access:\n  mode: first-match\n  useDefaults: false\n  rules:\n" +
		"    - {allow: /data/mixed/open}\n    - {deny: /data/mixed}\n    - {deny: /data/shut}\n" +
		"    - {deny: '~/key'}\n    - {deny: '~/**/*.pem'}\n"
	rules := compiledOf(t, newBook(policies(t, text)), one)
	closed := rules.Closed()
	expect.True(t, slices.Equal(closed, []string{"/data/shut"}), "closed as a whole: %+v", closed)
	for name, want := range map[string][]string{
		"/data/shut/x":            {"chatd-enforce", "bubblewrap", "landlock"},
		one.Home + "/key":         {"chatd-enforce"},
		one.Home + "/a/cert.pem":  {"chatd-enforce"},
		"/data/mixed/open":        nil,
		one.Home + "/nothing/got": nil,
	} {
		v := must.Get(rules.Verdict(name, filerules.Read))(t)
		if by := rules.KeptBy(v, closed, closed); !slices.Equal(by, want) {
			t.Errorf("%s is kept by %q, want %q", name, by, want)
		}
		if kernel := rules.byKernel(name); kernel.Denied() != (want != nil) {
			t.Errorf("%s: the kernel denies it by %+v", name, kernel)
		}
	}
}

// TestCheckRun: a run is denied by its directory or by a path that it names.
func TestRulesCheckRun(t *testing.T) {
	rules := compiledOf(t, newBook(policies(t, manyRules(1))), one)
	shut := one.Home + "/secret-0/x"
	for what, s := range map[string]chat.RunSpec{
		"":          {Command: "cat x"},
		"directory": {Command: "cat x", Cwd: shut},
		"path":      {Command: "cat x", Named: []chat.NamedPath{{Text: shut}}},
	} {
		d, err := rules.checkRun(t.Context(), s)
		expect.True(t, err == nil && (d != nil) == (what != ""),
			"a run with a closed %q: %+v, %v", what, d, err)
		if d != nil && (d.Rule == "" || d.Place == "" || d.Command != shut) {
			t.Errorf("a run with a closed %q is denied by %+v", what, d)
		}
	}
}

// TestNewKeys: a config that has lost a profile is refused, and a change of a key is in the sum.
func TestNewKeys(t *testing.T) {
	old := map[string]chat.Profile{profile: {Name: profile, Guard: chat.DefaultGuard()}}
	if _, err := newKeySet(old, map[string]chat.Profile{}); err == nil {
		t.Error("a profile may be lost")
	}
	before := must.Get(keySetOf(old))(t)
	changed := chat.Profile{Name: profile, ToolsOff: []string{"exec"}}
	after, err := keySetOf(map[string]chat.Profile{profile: changed})
	expect.True(t, err == nil && !after[profile].Guard.On() && after.sum() != before.sum(),
		"after the change: %+v, %v", after, err)
}
