package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hostSysctls are settings of the host that keep users apart where no layer does, and are off by
// default in the kernel. A layer refuses these to chats only; the host's other users still have
// them.
var hostSysctls = []struct{ name, why string }{
	{"kernel/kptr_restrict", "every user may read addresses of the kernel, which exploits start from"},
	{"kernel/dmesg_restrict", "every user may read the kernel's log, where chats' processes are named " +
		"when they are killed"},
	{"fs/protected_symlinks", "a program that writes to a shared /tmp follows the links of others"},
	{"fs/protected_hardlinks", "a user may keep another's file alive by a link to it"},
	{"fs/protected_fifos", "a program that writes to a shared /tmp opens the fifos of others"},
	{"fs/protected_regular", "a program that creates a file in a shared /tmp opens that of others"},
}

// SysctlFindings says which of them are off below root, /proc/sys. A kernel that lacks
// one has nothing to change.
func SysctlFindings(root string) (found []string) {
	for _, s := range hostSysctls {
		b, err := os.ReadFile(filepath.Join(root, s.name))
		if err == nil && strings.TrimSpace(string(b)) == "0" {
			name := strings.ReplaceAll(s.name, "/", ".")
			found = append(found, fmt.Sprintf("%s is 0: %s: sysctl -w %s=1", name, s.why, name))
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "kernel/core_pattern"))
	if program, piped := strings.CutPrefix(strings.TrimSpace(string(b)), "|"); err == nil && piped {
		// core(5): the limit on core files does not hold for a pipe.
		found = append(found, fmt.Sprintf("kernel.core_pattern is a pipe: each program that "+
			"crashes in a chat starts %q as root: sysctl -w kernel.core_pattern=core", program))
	}
	return found
}

// TerminalFinding warns if awake chats, at each terminals each, could open more than
// kernel.pty.max below root, /proc/sys, has for all. kernel.pty.reserve is for the host's own mount
// namespace.
func TerminalFinding(root string, awake, each int) []string {
	var largest, reserved int
	for name, n := range map[string]*int{"max": &largest, "reserve": &reserved} {
		b, err := os.ReadFile(filepath.Join(root, "kernel/pty", name))
		if err == nil {
			_, err = fmt.Sscan(string(b), n)
		}
		if err != nil {
			return nil
		}
	}
	if want := awake * each; want > largest-reserved {
		return []string{fmt.Sprintf("%d awake chats may open %d terminals each, and this host has "+
			"%d for all: sysctl -w kernel.pty.max=%d", awake, each,
			largest-reserved, max(want+reserved, 1<<17))}
	}
	return nil
}
