package layers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// Settings that are off are named with what turns them on, and those that are on, higher
// or missing are not.
func TestSysctlFindings(t *testing.T) {
	root := t.TempDir()
	set := func(name, value string) {
		t.Helper()
		file := filepath.Join(root, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(value+"\n"), 0o644))
	}
	if got := SysctlFindings(root); len(got) != 0 {
		t.Errorf("a kernel without any of them: %q", got)
	}
	for _, s := range hostSysctls {
		set(s.name, "0")
	}
	set("kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P")
	got := strings.Join(SysctlFindings(root), "\n")
	for _, want := range []string{"kernel.kptr_restrict=1", "kernel.dmesg_restrict=1",
		"fs.protected_symlinks=1", "fs.protected_hardlinks=1",
		"fs.protected_fifos=1", "fs.protected_regular=1",
		`"/usr/lib/systemd/systemd-coredump %P" as root`} {
		expect.True(t, strings.Contains(got, want), "%q is not said in\n%s", want, got)
	}
	for _, s := range hostSysctls {
		set(s.name, "2")
	}
	set("kernel/core_pattern", "core")
	if got := SysctlFindings(root); len(got) != 0 {
		t.Errorf("with all of them on: %q", got)
	}
}

// TestTerminalFinding: a host with fewer terminals than chats may open is named with a number that
// is enough.
func TestTerminalFinding(t *testing.T) {
	root := t.TempDir()
	if got := TerminalFinding(root, 1000, 64); got != nil {
		t.Errorf("a kernel without the setting: %q", got)
	}
	must.Do(t, os.MkdirAll(filepath.Join(root, "kernel/pty"), 0o755))
	for name, value := range map[string]string{"max": "4096\n", "reserve": "1024\n"} {
		file := filepath.Join(root, "kernel/pty", name)
		must.Do(t, os.WriteFile(file, []byte(value), 0o644))
	}
	if got := TerminalFinding(root, 48, 64); got != nil {
		t.Errorf("48 chats: %q", got)
	}
	got := TerminalFinding(root, 49, 64)
	expect.True(t, len(got) == 1 && strings.Contains(got[0], "3072 for all: sysctl -w kernel.pty.max=131072"),
		"49 chats: %q", got)
}
