package shims

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/internal/plan"

	"golang.org/x/sys/unix"
)

// probeNetwork checks that the session has no interface but lo, and reaches no abstract socket
// outside.
func probeNetwork(s plan.ProbeSpec) *finding {
	f := &finding{by: "network namespace"}
	names, err := interfaces()
	f.expect(err == nil && len(names) == 1 && names[0] == "lo", "interfaces: %s", strings.Join(names, " "))
	if s.Abstract != "" {
		err := connectAbstract(s.Abstract)
		f.expect(err == unix.ECONNREFUSED, "connect to abstract socket %s outside: %s", s.Abstract,
			outcome(err))
	}
	return f
}

// interfaces reads /proc/PID/net/dev (proc_pid_net(5)): two heading lines, then "name: …".
func interfaces() ([]string, error) {
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, nil
}

func connectAbstract(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name})
}

// probeSeccomp makes calls that the filter must refuse in a way the kernel
// itself would not: EPERM for arguments that are otherwise wrong or allowed.
func probeSeccomp(s plan.Status) *finding {
	f := &finding{by: "seccomp filter"}
	for _, c := range []struct {
		what string
		want unix.Errno
		nr   uintptr
		args [3]uintptr
	}{
		// No descriptor: EBADF without the filter. The high bit is one that the
		// kernel drops and a careless filter compares.
		{"ioctl TIOCSTI with a high bit set", unix.EPERM, unix.SYS_IOCTL,
			[3]uintptr{^uintptr(0), 1<<32 | unix.TIOCSTI, 0}},
		{"socket AF_VSOCK", unix.EPERM, unix.SYS_SOCKET, [3]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM, 0}},
		{"socket AF_NETLINK, process connector", unix.EPERM, unix.SYS_SOCKET,
			[3]uintptr{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_CONNECTOR}},
		{"socket AF_NETLINK, routes", unix.EAFNOSUPPORT, unix.SYS_SOCKET,
			[3]uintptr{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_ROUTE}},
		// No descriptor, no filter: EBADF and EFAULT without ours.
		{"setsockopt SO_ATTACH_FILTER", unix.ENOPROTOOPT, unix.SYS_SETSOCKOPT,
			[3]uintptr{^uintptr(0), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}},
		{"setsockopt SO_TIMESTAMPING", unix.ENOPROTOOPT, unix.SYS_SETSOCKOPT,
			[3]uintptr{^uintptr(0), unix.SOL_SOCKET, unix.SO_TIMESTAMPING}},
		{"seccomp of a further filter", unix.EINVAL, unix.SYS_SECCOMP,
			[3]uintptr{unix.SECCOMP_SET_MODE_FILTER, 0, 0}},
		{"io_uring_setup", unix.EPERM, unix.SYS_IO_URING_SETUP, [3]uintptr{}},
		{"keyctl", unix.EPERM, unix.SYS_KEYCTL, [3]uintptr{unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 0}},
		{"clone3", unix.ENOSYS, unix.SYS_CLONE3, [3]uintptr{}},
		// No path: EFAULT without the filter.
		{"mknodat of a whiteout", unix.EPERM, unix.SYS_MKNODAT,
			[3]uintptr{^uintptr(0), 0, unix.S_IFCHR | 0o600}},
	} {
		fd, _, e := unix.Syscall(c.nr, c.args[0], c.args[1], c.args[2])
		f.expect(e == c.want, "%s: %s", c.what, e.Error())
		if e == 0 && c.nr == unix.SYS_SOCKET {
			f.expect(unix.Close(int(fd)) == nil, "close it")
		}
	}
	f.expect(s.Seccomp == unix.SECCOMP_MODE_FILTER, "Seccomp is %d in its status", s.Seccomp)
	return f
}

func probePrivileges(s plan.Status) *finding {
	f := &finding{by: "no_new_privs, empty capability sets"}
	f.expect(s.NoNewPrivs, "no_new_privs is %t", s.NoNewPrivs)
	f.expect(len(s.UIDs) == 4 && s.CapEff|s.CapPrm|s.CapInh|s.CapAmb == 0,
		"capabilities: effective %x, permitted %x, inheritable %x, ambient %x (bounding %x)", s.CapEff,
		s.CapPrm, s.CapInh, s.CapAmb, s.CapBnd)
	gained, tried := gainBySetuid("/usr/bin/su")
	if tried {
		f.expect(!gained, "running setuid /usr/bin/su gains an effective uid: %t", gained)
	}
	return f
}

// gainBySetuid runs a setuid program that waits for a password on a pipe, and reads its ids. If
// the program does not exist, tried is false.
func gainBySetuid(path string) (gained, tried bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_ISUID == 0 {
		return false, false
	}
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return false, false
	}
	// The ids change a moment after the exec that Start waits for, and the program may end
	// soon: any gain seen in between counts.
	for try, done := 0, false; !done && try < 20; try++ {
		done = execDone(cmd.Process.Pid)
		text, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
		if err != nil {
			break
		}
		if s, err := plan.ParseStatus(string(text)); err == nil && len(s.UIDs) == 4 {
			tried = true
			gained = gained || s.UIDs[1] != os.Getuid()
		}
		if !done {
			time.Sleep(time.Millisecond)
		}
	}
	_ = in.Close() // with Kill and Wait: it ends one way or the other
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return gained, tried
}

// execDone reports whether a process whose exec has begun has its final ids: the kernel writes
// its auxiliary vector (proc_pid_auxv(5)) after them. The vector of a process with more rights
// is unreadable, so gainBySetuid polls a process that gained some until the last try.
func execDone(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/auxv")
	return err == nil && len(bytes.Trim(b, "\x00")) > 0
}
