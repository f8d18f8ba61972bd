package sys

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// BootID is the kernel's name for this boot (random(4)).
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell this boot from another: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// KernelRelease is the running kernel's release, as "6.12.9" (uname(2)).
func KernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
