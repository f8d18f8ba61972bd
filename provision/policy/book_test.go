package policy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const profile = "default"

// one is a chat of the profile.
var one = Chat{Profile: profile, Agent: "main", Home: "/h/00112233445566aa"}

func policies(tb testing.TB, text string) map[string]*filerules.Policy {
	tb.Helper()
	p := must.Get(rulefile.Load("rules", []byte(text)))(tb)
	return map[string]*filerules.Policy{profile: p}
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

func compiledOf(tb testing.TB, b *book, c Chat) *Rules {
	tb.Helper()
	r := must.Get(b.rules(c))(tb)
	return r
}

// deniedBy asks the rules of a chat, as a run does.
func deniedBy(tb testing.TB, b *book, c Chat, p string) bool {
	tb.Helper()
	v := must.Get(compiledOf(tb, b, c).Check(p, filerules.Bash))(tb)
	return v.Denied()
}

// TestRulesAreKept: the second run of a chat is checked by the rules compiled for the first one.
func TestRulesAreKept(t *testing.T) {
	b := newBook(policies(t, manyRules(3)))
	if first, second := compiledOf(t, b, one), compiledOf(t, b, one); first != second {
		t.Errorf("compiled again: %p and %p", first, second)
	}
}

// TestRulesOfOthers: chats that differ in one part of the key are each checked by their own rules,
// in any order.
func TestRulesOfOthers(t *testing.T) {
	const ofAgents = "access: {useDefaults: false, deny: ['~/key']}\n" +
		"agents: {open: {access: {rules: [{allow: '~/key'}]}}}\n"
	all := policies(t, ofAgents)
	all["other"] = policies(t, "access: {useDefaults: false, deny: ['~/lock']}\n")[profile]
	chats := []Chat{
		{Profile: profile, Agent: "main", Home: "/h/aa"},
		{Profile: profile, Agent: "main", Home: "/h/bb"},
		{Profile: profile, Agent: "open", Home: "/h/aa"},
		{Profile: "other", Agent: "main", Home: "/h/aa"},
		{Profile: "none", Agent: "main", Home: "/h/aa"},
	}
	denies := []string{"aa/key", "bb/key", "", "aa/lock", ""}
	for turn := range chats {
		b := newBook(all)
		for i := range chats {
			i = (i + turn) % len(chats)
			for _, p := range []string{"aa/key", "bb/key", "aa/lock"} {
				if got := deniedBy(t, b, chats[i], "/h/"+p); got != (p == denies[i]) {
					t.Errorf("%+v: %s denied: %v", chats[i], p, got)
				}
			}
		}
	}
}

// TestRulesAreBounded: for any number of chats, the cache stays below its bound, and has the rules
// of the chat that ran last.
func TestRulesAreBounded(t *testing.T) {
	b := newBook(policies(t, manyRules(100)))
	for i := range 2 * maxCompiled {
		other := one
		other.Home = fmt.Sprintf("/h/%016x", i)
		if first := compiledOf(t, b, other); compiledOf(t, b, other) != first {
			t.Fatal("the last one is not kept")
		}
		must.True(t, len(b.kept) <= maxCompiled, "after %d chats %d rule sets are kept", i+1, len(b.kept))
	}
}

// TestSimultaneousRules: runs of a few chats and a reload, simultaneously; under -race.
func TestSimultaneousRules(t *testing.T) {
	var inForce atomic.Pointer[book]
	inForce.Store(newBook(policies(t, manyRules(20))))
	next := newBook(policies(t, manyRules(30)))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				c := one
				c.Home = fmt.Sprintf("/h/%016x", n%(i+1))
				expect.True(t, deniedBy(t, inForce.Load(), c, c.Home+"/secret-1/x"),
					"%s is checked by the rules of another", c.Home)
				if n == 25 && i == 0 {
					inForce.Store(next)
				}
			}
		})
	}
	all.Wait()
	expect.True(t, deniedBy(t, inForce.Load(), one, "secret-29/x"), "the new rules do not hold")
}
