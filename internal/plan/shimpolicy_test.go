package plan

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestShimPolicy: what chatd writes the shims read, and nothing else.
func TestShimPolicy(t *testing.T) {
	p := ShimPolicy{Home: "/h", Agent: "a", Guard: chat.DefaultGuard(), Rules: []byte("{}")}
	p.Guard.CustomAllowPatterns = []chat.Pattern{{Text: "a|b"}}
	text := must.Get(p.JSON())(t)
	name := filepath.Join(t.TempDir(), "policy.json")
	if got, err := ReadShimPolicy(name); err != nil || got.Home != "" {
		t.Errorf("no policy: %+v, %v", got, err)
	}
	for content, ok := range map[string]bool{string(text): true, "{}": true, "": false, "{\"x\":1}": false, "[]": false} {
		must.Do(t, os.WriteFile(name, []byte(content), 0o600))
		got, err := ReadShimPolicy(name)
		if (err == nil) != ok || ok && content == string(text) && (got.Guard.CustomAllowPatterns[0].Text != "a|b" || got.Home != "/h") {
			t.Errorf("%s: %+v, %v", content, got, err)
		}
	}
}

func TestGuardedNames(t *testing.T) {
	for _, name := range GuardedNames() {
		expect.True(t, !slices.Contains(ShimNames(), name), "%s is among those that never run", name)
	}
}
