package provision

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSecretFindings: doctor without a daemon names each secret whose file cannot be used, and shows
// nothing of what is in one.
func TestSecretFindings(t *testing.T) {
	dir := t.TempDir()
	opened := filepath.Join(dir, "open")
	must.Do(t, os.WriteFile(opened, []byte("sk-0123456789\n"), 0o644))
	all := newManager(Options{Secrets: map[string]secret.Spec{
		"none": {File: filepath.Join(dir, "none")}, "open": {File: opened},
	}}, nil).secrets.findings()
	expect.True(t, len(all) == 2 && strings.Contains(all[0], "secret none of") &&
		strings.Contains(all[1], "secret open of") && !strings.Contains(all[1], "sk-"), "%q", all)
}
