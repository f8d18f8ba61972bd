package provision

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/must"
)

// ruled is a manager that provisions nothing, with the file rules of a profile; empty
// rules are none.
func ruled(tb testing.TB, rules string) (*Manager, subject) {
	tb.Helper()
	p := chat.Profile{Name: chat.DefaultProfile, Guard: chat.DefaultGuard()}
	opt := Options{State: "/s", Run: "/r", Homes: "/h", Profiles: map[string]chat.Profile{p.Name: p}}
	if rules != "" {
		policy := must.Get(rulefile.Load("rules", []byte(rules)))(tb)
		opt.FileRules = map[string]*filerules.Policy{p.Name: policy}
	}
	m := newManager(opt, nil)
	must.Do(tb, m.policy.CheckFirst())
	return m, m.chats.subject(state.Record{ID: "00112233445566aa", UID: 70001, Profile: p.Name, Agent: chat.DefaultAgent})
}

// manyRules is a file with n rules.
func manyRules(n int) string {
	var b strings.Builder
	b.WriteString("access:\n  deny:\n")
	for i := range n {
		fmt.Fprintf(&b, "    - '~/secret-%d/**'\n", i)
	}
	return b.String()
}

// BenchmarkEntry is what a run, a screen or a file tool of an awake chat costs here
// before anything is started: its rules, and what its session sees.
func BenchmarkEntry(b *testing.B) {
	for name, rules := range map[string]string{"rules=none": "", "rules=1000": manyRules(1000)} {
		m, rec := ruled(b, rules)
		b.Run("view/"+name, func(b *testing.B) {
			for b.Loop() {
				m.mounts.of(rec, &liveSession{Session: &session.Session{}})
			}
		})
		b.Run("rules/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := m.policy.Rules(rec.rules()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestShimPolicyAtTheBeginning: what begins a session has the policy that its shims check against; what
// enters one does not write it again.
func TestShimPolicyAtTheBeginning(t *testing.T) {
	m, rec := ruled(t, manyRules(3))
	v, _, err := m.mounts.next(rec)
	if err != nil || v.PolicyDir != m.dirs.sessionDir(rec.ID, rec.UID).Policy() || !strings.Contains(string(m.policy.ForShims(rec.rules())), "secret-2") {
		t.Errorf("a session begins with the policy in %q: %q, %v", v.PolicyDir, m.policy.ForShims(rec.rules()), err)
	}
	if v := m.mounts.of(rec, &liveSession{Session: &session.Session{}}); v.PolicyDir != "" {
		t.Errorf("an entry has %q", v.PolicyDir)
	}
}
