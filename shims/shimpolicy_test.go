package shims

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestShimPolicy: what chatd writes the shims read, and nothing else.
func TestShimPolicy(t *testing.T) {
	listed, err := chat.ParseAllow("203.0.113.0/24:443")
	if err != nil {
		t.Fatal(err)
	}
	p := ShimPolicy{Home: "/h", Agent: "a", Guard: chat.DefaultGuard(), Network: chat.NetworkShared, Egress: []chat.Allow{listed}, Resolvers: true, Rules: "{}"}
	p.Guard.CustomAllowPatterns = []chat.Pattern{{Text: "a|b"}}
	text, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "policy.json")
	if got, err := ReadShimPolicy(name); err != nil || got.Home != "" {
		t.Errorf("no policy: %+v, %v", got, err)
	}
	for content, ok := range map[string]bool{string(text): true, "{}": true, "": false, "{\"x\":1}": false, "[]": false} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadShimPolicy(name)
		if (err == nil) != ok || ok && content == string(text) && (got.Guard.CustomAllowPatterns[0].Text != "a|b" || got.Egress[0] != p.Egress[0] || got.Home != "/h") {
			t.Errorf("%s: %+v, %v", content, got, err)
		}
	}
}

func TestReadShimDenial(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"program":"rm","argv":"rm x","rule":"y"}`: true, `{"program":"rm","rule":"y"}`: true, "": false, "x": false, `{"program":"rm"}`: false,
		`{"program":"rm","rule":"y","uid":0}`: false, `{"program":"` + strings.Repeat("x", MaxShimDenial) + `","rule":"y"}`: false,
	} {
		if d, err := ReadShimDenial([]byte(line)); (err == nil) != ok || ok && d.Rule != "y" {
			t.Errorf("%.60s: %+v, %v", line, d, err)
		}
	}
}

func TestGuardedNames(t *testing.T) {
	for _, name := range GuardedNames() {
		if slices.Contains(ShimNames(), name) {
			t.Errorf("%s is among those that never run", name)
		}
	}
}
