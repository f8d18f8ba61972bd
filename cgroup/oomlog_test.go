package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOOMLogFinding: a host whose kernel lists all tasks at each OOM kill is told what to set.
func TestOOMLogFinding(t *testing.T) {
	setting := filepath.Join(t.TempDir(), "oom_dump_tasks")
	for value, want := range map[string]bool{"0\n": false, "1\n": true} {
		must.Do(t, os.WriteFile(setting, []byte(value), 0o600))
		found := strings.Join(OOMLogFinding(setting), "\n")
		expect.True(t, strings.Contains(found, "sysctl -w vm.oom_dump_tasks=0") == want,
			"%q: %q", value, found)
	}
	if found := OOMLogFinding(filepath.Join(t.TempDir(), "none")); len(found) > 0 {
		t.Errorf("a kernel without it: %q", found)
	}
}
