package provision

import (
	"testing"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/verdict"
)

func loaded(tb testing.TB, text string) *filerules.Policy {
	tb.Helper()
	p, err := filerules.Load("rules", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// denied asks the rules that hold for a chat now, as a run does.
func denied(tb testing.TB, m *Manager, rec state.Record, p string) bool {
	tb.Helper()
	rules, err := m.rules(rec)
	if err != nil {
		tb.Fatal(err)
	}
	v, err := rules.Check(p, filerules.Bash)
	if err != nil {
		tb.Fatal(err)
	}
	return v.Denied()
}

// TestRulesAfterReload: nothing that was compiled before new rules were set is asked after it,
// not even what somebody began to compile before and is done with later.
func TestRulesAfterReload(t *testing.T) {
	m, rec := ruled(t, "access: {useDefaults: false, deny: ['~/old']}\n")
	old := m.access.Load()
	if !denied(t, m, rec, "old") || denied(t, m, rec, "new") {
		t.Fatal("the first rules do not hold")
	}
	const text = "access: {useDefaults: false, deny: ['~/new']}\n"
	m.SetAccess(map[string]*filerules.Policy{rec.Profile: loaded(t, text)})
	if denied(t, m, rec, "old") || !denied(t, m, rec, "new") {
		t.Error("a run is checked by the rules of before the reload")
	}
	late := rec
	late.ID = "ffeeddccbbaa0099"
	c := verdict.Chat{Profile: rec.Profile, Agent: late.Agent, Home: m.home(late.ID)}
	if _, err := old.Rules(c); err != nil {
		t.Fatal(err)
	}
	if denied(t, m, late, "old") || !denied(t, m, late, "new") {
		t.Error("a late compilation has left old rules behind")
	}
	m.SetAccess(nil)
	if denied(t, m, rec, "new") {
		t.Error("rules that were taken away hold")
	}
}
