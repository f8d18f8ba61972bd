package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOOMLogFinding: a host whose kernel lists all tasks at each OOM kill is told what to set.
func TestOOMLogFinding(t *testing.T) {
	setting := filepath.Join(t.TempDir(), "oom_dump_tasks")
	for value, want := range map[string]bool{"0\n": false, "1\n": true} {
		if err := os.WriteFile(setting, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		found := strings.Join(OOMLogFinding(setting), "\n")
		if strings.Contains(found, "sysctl -w vm.oom_dump_tasks=0") != want {
			t.Errorf("%q: %q", value, found)
		}
	}
	if found := OOMLogFinding(filepath.Join(t.TempDir(), "none")); len(found) > 0 {
		t.Errorf("a kernel without it: %q", found)
	}
}
