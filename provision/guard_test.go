package provision

import (
	"context"
	"errors"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestJudgingIsBounded: while as many commands are judged as may be at once, everything
// that would read one more waits, and goes when its caller does.
func TestJudgingIsBounded(t *testing.T) {
	m, rec := ruled(t, manyRules(1))
	rules, err := m.rules(rec)
	if err != nil {
		t.Fatal(err)
	}
	for range cap(judging) {
		judging <- struct{}{}
	}
	defer func() {
		for range cap(judging) {
			<-judging
		}
	}()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	q := chat.Question{Command: "ls"}
	_, runErr := m.judgePaths(gone, rec, chat.RunSpec{Command: "ls"})
	_, rulesErr := askRules(gone, rules.Ruleset, q, func(p string) string { return p })
	for what, err := range map[string]error{"a run": runErr, "explain": rulesErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s was judged beyond the bound: %v", what, err)
		}
	}
}
