package policy

import (
	"context"
	"errors"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestChecksAreBounded: while the maximum of commands is checked, everything that would check one
// more waits, and goes when its caller does.
func TestChecksAreBounded(t *testing.T) {
	rules := compiledOf(t, newBook(policies(t, manyRules(1))), one)
	for range cap(checking) {
		checking <- struct{}{}
	}
	defer func() {
		for range cap(checking) {
			<-checking
		}
	}()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	q := chat.Question{Command: "ls"}
	_, runErr := rules.checkRun(gone, chat.RunSpec{Command: "ls"})
	_, _, rulesErr := rules.explain(gone, q, nil)
	for what, err := range map[string]error{"a run": runErr, "explain": rulesErr} {
		expect.True(t, errors.Is(err, context.Canceled), "%s was checked beyond the bound: %v", what, err)
	}
}

// TestLinkedVerdicts: the rules close the target of a link, to explain and to file tools; without
// the links that the chat reports, they close only the names themselves.
func TestLinkedVerdicts(t *testing.T) {
	const text = "access: {useDefaults: false, deny: ['~/way/key']}\n"
	rules := compiledOf(t, newBook(policies(t, text)), one)
	links := linkTargets{one.Home + "/way/key": {To: one.Home + "/real/key"}}
	asked := func([]string) (map[string]filewire.Link, error) { return links, nil }
	q := chat.Question{Path: one.Home + "/real/key", Op: "read"}
	v, got, err := rules.explain(t.Context(), q, asked)
	expect.True(t, err == nil && v.Denied() && len(got) == 1, "explain: %+v by %v, %v", v, got, err)
	if d := filewire.CheckBy(rules.Ruleset)(filewire.Read, q.Path); d != nil {
		t.Errorf("without links: %v", d)
	}
}

// TestRedact: a denial by a rule loses what names the rule, if asked; another denial keeps it.
func TestRedactDenial(t *testing.T) {
	rules := compiledOf(t, newBook(policies(t, manyRules(1))), one)
	d := filewire.CheckBy(rules.Ruleset)(filewire.Read, one.Home+"/secret-0/x")
	must.True(t, d != nil && d.Rule != "" && d.Place != "", "denied by %+v", d)
	other := *d
	other.Layer = ""
	whole := *d
	_, _, _ = redact(&whole, false), redact(d, true), redact(&other, true)
	if d.Rule+d.Place+d.Path+d.Layer != "" || d.Message == "" ||
		other.Rule == "" || whole.Rule == "" {
		t.Errorf("%+v, %+v and %+v", d, other, whole)
	}
}
