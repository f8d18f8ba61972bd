package provision

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Settings that are off are named with what turns them on, and those that are on, higher
// or missing are not.
func TestSysctlFindings(t *testing.T) {
	root := t.TempDir()
	set := func(name, value string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := sysctlFindings(root); len(got) != 0 {
		t.Errorf("a kernel without any of them: %q", got)
	}
	for _, s := range hostSysctls {
		set(s.name, "0")
	}
	set("kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P")
	got := strings.Join(sysctlFindings(root), "\n")
	for _, want := range []string{"kernel.kptr_restrict=1", "kernel.dmesg_restrict=1", "fs.protected_symlinks=1", "fs.protected_hardlinks=1",
		"fs.protected_fifos=1", "fs.protected_regular=1", `"/usr/lib/systemd/systemd-coredump %P" as root`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not said in\n%s", want, got)
		}
	}
	for _, s := range hostSysctls {
		set(s.name, "2")
	}
	set("kernel/core_pattern", "core")
	if got := sysctlFindings(root); len(got) != 0 {
		t.Errorf("with all of them on: %q", got)
	}
}
