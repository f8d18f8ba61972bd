package provision

import (
	"fmt"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
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

// TestRulesAreKept: the second run of a chat is judged by what the first one compiled.
func TestRulesAreKept(t *testing.T) {
	m, rec := ruled(t, manyRules(3))
	first, err := m.rules(rec)
	second, err2 := m.rules(rec)
	if err != nil || err2 != nil || first != second {
		t.Errorf("compiled again: %p and %p, %v, %v", first, second, err, err2)
	}
}

// TestRulesAfterReload: nothing that was compiled before new rules were set is judged by
// after it, not even what somebody began to compile before and is done with later.
func TestRulesAfterReload(t *testing.T) {
	m, rec := ruled(t, "access: {useDefaults: false, deny: ['~/old']}\n")
	old := m.access.Load()
	if !denied(t, m, rec, "old") || denied(t, m, rec, "new") {
		t.Fatal("the first rules do not hold")
	}
	m.SetAccess(map[string]*filerules.Policy{rec.Profile: loaded(t, "access: {useDefaults: false, deny: ['~/new']}\n")})
	if now := m.access.Load(); len(now.kept)+now.used.Len()+now.size != 0 {
		t.Errorf("%d bytes of the old rules are kept", now.size)
	}
	if denied(t, m, rec, "old") || !denied(t, m, rec, "new") {
		t.Error("a run is judged by the rules of before the reload")
	}
	late := rec
	late.ID = "ffeeddccbbaa0099"
	if _, err := old.rules(whose{old.policy(rec.Profile), late.Agent, m.home(late.ID)}); err != nil {
		t.Fatal(err)
	}
	if denied(t, m, late, "old") || !denied(t, m, late, "new") {
		t.Error("who was late has left old rules behind")
	}
	m.SetAccess(nil)
	if denied(t, m, rec, "new") {
		t.Error("rules that were taken away hold")
	}
}

// TestRulesOfOthers: chats that differ in one thing that rules hang on are each judged by
// their own, whoever came first.
func TestRulesOfOthers(t *testing.T) {
	const ofAgents = "access: {useDefaults: false, deny: ['~/key']}\nagents: {open: {access: {rules: [{allow: '~/key'}]}}}\n"
	chats := []state.Record{
		{ID: "00112233445566aa", Profile: chat.DefaultProfile, Agent: chat.DefaultAgent},
		{ID: "00112233445566bb", Profile: chat.DefaultProfile, Agent: chat.DefaultAgent},
		{ID: "00112233445566aa", Profile: chat.DefaultProfile, Agent: "open"},
		{ID: "00112233445566aa", Profile: "other", Agent: chat.DefaultAgent},
		{ID: "00112233445566aa", Profile: "none", Agent: chat.DefaultAgent},
	}
	denies := []string{"aa/key", "bb/key", "", "aa/lock", ""}
	for turn := range chats {
		m, _ := ruled(t, ofAgents)
		m.SetAccess(map[string]*filerules.Policy{chat.DefaultProfile: loaded(t, ofAgents), "other": loaded(t, "access: {useDefaults: false, deny: ['~/lock']}\n")})
		for i := range chats {
			i = (i + turn) % len(chats)
			for _, p := range []string{"aa/key", "bb/key", "aa/lock"} {
				if got := denied(t, m, chats[i], "/h/00112233445566"+p); got != (p == denies[i]) {
					t.Errorf("%+v: %s denied: %v", chats[i], p, got)
				}
			}
		}
	}
}

// TestRulesAreBounded: however many chats run, what is kept of them stays below the bound,
// and is counted right; the chat that ran last is among them.
func TestRulesAreBounded(t *testing.T) {
	m, rec := ruled(t, manyRules(100))
	book := m.access.Load()
	one, err := m.rules(rec)
	if err != nil {
		t.Fatal(err)
	}
	if links, err := one.links(); err != nil || len(links) != 103 {
		t.Errorf("%d links, %v, want the home, each of 100 directories, and the two of the defaults", len(links), err)
	}
	if book.max != maxCompiled || one.size < 100*300 {
		t.Errorf("kept up to %d bytes, of which one has %d", book.max, one.size)
	}
	book.max = 5*one.size + one.size/2
	for i := range 50 {
		again, err := m.rules(rec)
		if err != nil || again != one {
			t.Fatal("who runs again and again is forgotten", err)
		}
		rec := rec
		rec.ID = chat.ID(fmt.Sprintf("%016x", i))
		for range 2 {
			if _, err := m.rules(rec); err != nil {
				t.Fatal(err)
			}
		}
		if sum := held(book); sum > book.max || sum != book.size || book.used.Len() != len(book.kept) || book.used.Len() != min(i+2, 5) {
			t.Fatalf("after %d chats: %d bytes, counted as %d, in %d and %d places", i+1, sum, book.size, book.used.Len(), len(book.kept))
		}
		if book.used.Front().Value.(*chatRules).whose.home != m.home(rec.ID) {
			t.Fatal("the last one is not kept")
		}
	}
	book.max = one.size - 1
	rec.ID = "ffeeddccbbaa0099"
	if _, err := m.rules(rec); err != nil || book.find(whose{m.policy(rec), rec.Agent, m.home(rec.ID)}) != nil {
		t.Errorf("what does not fit alone is kept: %v", err)
	}
}

func held(b *ruleBook) (sum int) {
	for e := b.used.Front(); e != nil; e = e.Next() {
		sum += e.Value.(*chatRules).size
	}
	return sum
}

// TestRulesAtOnce: runs of a few chats and a reload, all at once; under -race.
func TestRulesAtOnce(t *testing.T) {
	m, rec := ruled(t, manyRules(20))
	m.access.Load().max = 1 << 15
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			rec := rec
			for n := range 50 {
				rec.ID = chat.ID(fmt.Sprintf("%016x", n%(i+1)))
				own := m.home(rec.ID) + "/secret-1/x"
				if !denied(t, m, rec, own) {
					t.Errorf("chat %s is judged by the rules of another", rec.ID)
				}
				if n == 25 && i == 0 {
					m.SetAccess(map[string]*filerules.Policy{rec.Profile: loaded(t, manyRules(30))})
				}
			}
		})
	}
	all.Wait()
	if !denied(t, m, rec, "secret-29/x") {
		t.Error("the new rules do not hold")
	}
}
