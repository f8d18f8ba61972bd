package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// needed are the capabilities of chatd.service and of what it starts.
var needed = []struct {
	name   string
	number uint
}{
	{"SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"NET_ADMIN", unix.CAP_NET_ADMIN}, {"SYS_PTRACE", unix.CAP_SYS_PTRACE},
	{"DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH}, {"SYS_CHROOT", unix.CAP_SYS_CHROOT},
	{"CHOWN", unix.CAP_CHOWN},
	{"DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"FOWNER", unix.CAP_FOWNER}, {"KILL", unix.CAP_KILL},
	{"SETUID", unix.CAP_SETUID}, {"SETGID", unix.CAP_SETGID}, {"NET_RAW", unix.CAP_NET_RAW},
	{"NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE},
}

// needCapabilities fails where no wall can be tried: without these two there is neither a namespace
// nor a packet rule. It names all that is missing. What one of the others is for, its layer says.
func needCapabilities(what string) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("cannot %s: cannot read the capabilities: %w", what, err)
	}
	lacks := func(c uint) bool { return have[c/32].Effective&(1<<(c%32)) == 0 }
	if !lacks(unix.CAP_SYS_ADMIN) && !lacks(unix.CAP_NET_ADMIN) {
		return nil
	}
	var missing, options []string
	for _, c := range needed {
		if lacks(c.number) {
			missing, options = append(missing, "CAP_"+c.name), append(options, "--cap-add="+c.name)
		}
	}
	var cgroups unix.Statfs_t
	if unix.Statfs("/sys/fs/cgroup", &cgroups) == nil && cgroups.Flags&unix.ST_RDONLY != 0 {
		missing = append(missing,
			"a /sys/fs/cgroup that can be written (in the container: mount -o remount,rw /sys/fs/cgroup)")
	}
	return fmt.Errorf("cannot %s: this process is root without %s; a container gets them by %s --security-opt=apparmor=unconfined "+
		"--security-opt=seccomp=unconfined, or by --privileged: %w", what, strings.Join(missing, ", "),
		strings.Join(options, " "), chat.ErrUnsupported)
}
