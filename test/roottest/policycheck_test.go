package roottest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestPolicyCheckCounts: chatd policy check refuses a rule that matches too much of this host's
// /usr, by its line, and loads one that does not.
func TestPolicyCheckCounts(t *testing.T) {
	needsRoot(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	const text = "access:\n  deny:\n  - \"*.none\"\n  - \"*.counted\"\n"
	must.Do(t, os.WriteFile(rules, []byte(text), 0o600))
	for files, refused := range map[string]bool{"20": false, "20001": true} {
		const script = `mount -t tmpfs none /usr/share && cd /usr/share &&
			seq -f %g.counted "$1" | xargs touch && exec "$2" policy check --json "$3"`
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", script,
			"sh", files, programs.chatd, rules).Output()
		var got struct {
			Valid  bool
			Errors []struct{ Place, Why string }
		}
		if jsonErr := json.Unmarshal(out, &got); jsonErr != nil {
			t.Fatalf("policy check: %v, %v: %s", err, jsonErr, out)
		}
		if !refused {
			expect.True(t, err == nil && got.Valid, "with %s files: %v: %s", files, err, out)
			continue
		}
		if err == nil || got.Valid || len(got.Errors) != 1 || got.Errors[0].Place != rules+":4" ||
			!strings.Contains(got.Errors[0].Why, "it matches "+files+" places") {
			t.Errorf("with %s files: %v: %s", files, err, out)
		}
	}
}
