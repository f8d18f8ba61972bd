package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// kernelCase is one way out by a system call: refused to the chat, and not
// refused in that way to root on the host, or else it proves nothing.
type kernelCase struct {
	name string
	do   []string
	want string
	// root is what root on the host gets; "" means ok. A kernel that lacks the
	// call at all says so to both, and the case is passed over.
	root string
}

func socketCase(name string, family, kind, protocol int) kernelCase {
	return kernelCase{"socket " + name, []string{"socket", strconv.Itoa(family), strconv.Itoa(kind), strconv.Itoa(protocol)}, "EPERM", ""}
}

func unshareCase(name string, flag int) kernelCase {
	return kernelCase{"unshare " + name, []string{"unshare", strconv.Itoa(flag)}, "EPERM", ""}
}

func kernelCases(a inmate) []kernelCase { return append(callCases(a), fileCases()...) }

func callCases(a inmate) []kernelCase {
	const bad = "EBADF EINVAL EFAULT ENOSYS ENOENT ESRCH ENOTBLK ENOMEM ENAMETOOLONG ENODEV EPERM"
	return []kernelCase{
		socketCase("AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		socketCase("AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0),
		socketCase("raw ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		socketCase("raw ICMPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6),
		socketCase("raw IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW),
		socketCase("process connector", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_CONNECTOR),
		socketCase("netlink uevent", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT),
		socketCase("netlink audit", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_AUDIT),
		socketCase("netlink sock_diag", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG),
		socketCase("netlink netfilter", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_NETFILTER),
		socketCase("AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		socketCase("AF_XDP", unix.AF_XDP, unix.SOCK_RAW, 0),
		socketCase("AF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2),
		socketCase("SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		{"user keyring", []string{"keyctl"}, "EPERM", ""},
		{"add a key", []string{"add_key"}, "EPERM", ""},
		{"io_uring", []string{"io_uring"}, "EPERM", ""},
		{"bpf", []string{"bpf"}, "EPERM", ""},
		{"perf_event_open", []string{"perf"}, "EPERM", ""},
		{"userfaultfd", []string{"userfaultfd"}, "EPERM", ""},
		{"fanotify", []string{"fanotify"}, "EPERM", ""},
		{"TIOCSTI", []string{"tiocsti"}, "EPERM", "EBADF"},
		{"TIOCSTI with a high bit", []string{"tiocsti-high"}, "EPERM", "EBADF"},
		{"TIOCLINUX", []string{"tioclinux"}, "EPERM", "EBADF"},
		{"setns", []string{"setns", "uts"}, "EPERM", ""},
		{"unshare user", []string{"unshare", strconv.Itoa(unix.CLONE_NEWUSER)}, "EPERM", "EINVAL"}, // the attacker has threads
		unshareCase("mount", unix.CLONE_NEWNS), unshareCase("net", unix.CLONE_NEWNET),
		unshareCase("pid", unix.CLONE_NEWPID), unshareCase("ipc", unix.CLONE_NEWIPC), unshareCase("uts", unix.CLONE_NEWUTS),
		unshareCase("cgroup", unix.CLONE_NEWCGROUP), unshareCase("time", unix.CLONE_NEWTIME),
		{"clone with a user namespace", []string{"clone", strconv.Itoa(unix.CLONE_NEWUSER)}, "EPERM", ""},
		{"clone3 with a user namespace", []string{"clone3", strconv.Itoa(unix.CLONE_NEWUSER)}, "ENOSYS", ""},
		{"mount", []string{"mount", a.Home}, "EPERM", ""},
		{"umount", []string{"umount", "/no-such-file-of-chatd"}, "EPERM", "ENOENT"},
		{"remount", []string{"remount", "/no-such-file-of-chatd"}, "EPERM", "ENOENT"},
		{"fsopen", []string{"fsopen"}, "EPERM", ""},
		{"open_tree", []string{"open_tree", "/usr"}, "EPERM", ""},
		{"chroot", []string{"chroot", "/usr"}, "EPERM", ""},
		{"pivot_root", []string{"pivot_root", "/no-such-file-of-chatd"}, "EPERM", "ENOENT"},
		{"mknod null", []string{"mknod", a.in("null"), strconv.Itoa(unix.S_IFCHR | 0o666), strconv.Itoa(int(unix.Mkdev(1, 3)))}, "EPERM EACCES", ""},
		{"mknod memory", []string{"mknod", a.in("mem"), strconv.Itoa(unix.S_IFCHR | 0o666), strconv.Itoa(int(unix.Mkdev(1, 1)))}, "EPERM EACCES", ""},
		{"mknod disk", []string{"mknod", a.in("disk"), strconv.Itoa(unix.S_IFBLK | 0o666), strconv.Itoa(int(unix.Mkdev(8, 0)))}, "EPERM EACCES", ""},
		{"mknod whiteout", []string{"mknod", a.in("whiteout"), strconv.Itoa(unix.S_IFCHR), "0"}, "EPERM", ""},
		{"open by handle", []string{"handle", a.in(attackName)}, "EPERM", ""},
		{"dmesg", []string{"dmesg"}, "EPERM", ""},
		{"finit_module", []string{"finit_module"}, "EPERM", bad}, {"kexec_load", []string{"kexec_load"}, "EPERM", bad},
		{"reboot", []string{"reboot"}, "EPERM", bad}, {"swapoff", []string{"swapoff"}, "EPERM", bad}, {"acct", []string{"acct"}, "EPERM", bad},
		{"quotactl", []string{"quotactl"}, "EPERM", bad}, {"settimeofday", []string{"settimeofday"}, "EPERM", bad + " ok"},
		{"clock_adjtime", []string{"adjtimex-set"}, "EPERM", bad}, {"sethostname", []string{"sethostname"}, "EPERM", bad},
		{"kcmp", []string{"kcmp"}, "EPERM", "ok EPERM"},
		{"data in a SYN", []string{"fastopen-send"}, "ENOTSUP", "EBADF"},
		{"calls of i386", []string{"i386", a.Home}, "bad-system-call", ""},
		{"become root", []string{"setuid", "0"}, "EINVAL EPERM", ""},
		{"become root's group", []string{"setgid", "0"}, "EINVAL EPERM", ""},
		{"become a neighbour", []string{"setuid", fmt.Sprint(a.UID + 1)}, "EINVAL EPERM", ""},
		{"take a group", []string{"setgroups", "0"}, "EINVAL EPERM", ""},
		{"take a capability", []string{"capability", strconv.Itoa(unix.CAP_SYS_ADMIN)}, "EPERM", "EPERM"}, // not inheritable in root's shell either
		{"unlock securebits", []string{"securebits"}, "EPERM", ""},
		{"more files", []string{"raise", strconv.Itoa(unix.RLIMIT_NOFILE)}, "EPERM", "ok EPERM"},
		{"core files", []string{"raise", strconv.Itoa(unix.RLIMIT_CORE)}, "EPERM", "ok EPERM EINVAL"},
		{"more locked memory", []string{"raise", strconv.Itoa(unix.RLIMIT_MEMLOCK)}, "EPERM", "ok EPERM"},
		{"larger queues", []string{"raise", strconv.Itoa(unix.RLIMIT_MSGQUEUE)}, "EPERM", "ok EPERM"},
		{"outlive the host's services", []string{"oom", "0"}, "EACCES", ""},
	}
}

// fileCases are the kernel's own files.
func fileCases() []kernelCase {
	return []kernelCase{
		{"/dev/mem", []string{"open-write", "/dev/mem"}, "ENOENT", "ok ENOENT EPERM EACCES"},
		{"/dev/kmsg", []string{"open-write", "/dev/kmsg"}, "ENOENT", "ok ENOENT"},
		{"/dev/fuse", []string{"open-write", "/dev/fuse"}, "ENOENT", "ok ENOENT"},
		{"/dev/kvm", []string{"open-write", "/dev/kvm"}, "ENOENT", "ok ENOENT"},
		{"/dev/net/tun", []string{"open-write", "/dev/net/tun"}, "ENOENT", "ok ENOENT"},
		{"/proc/kcore", []string{"read", "/proc/kcore"}, "EPERM EACCES ENOENT", "ok ENOENT EPERM"},
		{"/proc/kmsg", []string{"read", "/proc/kmsg"}, "EPERM EACCES ENOENT", "ok ENOENT EAGAIN EPERM"},
		{"/proc/sysrq-trigger", []string{"open-write", "/proc/sysrq-trigger"}, "EROFS EACCES ENOENT EPERM", "ok ENOENT EROFS"},
		{"core_pattern", []string{"open-write", "/proc/sys/kernel/core_pattern"}, "EROFS EACCES", "ok EROFS"},
		{"modprobe path", []string{"open-write", "/proc/sys/kernel/modprobe"}, "EROFS EACCES ENOENT", "ok EROFS ENOENT"},
		{"ip_forward", []string{"open-write", "/proc/sys/net/ipv4/ip_forward"}, "EROFS EACCES", ""},
		{"uid_map", []string{"open-write", "/proc/self/uid_map"}, "EACCES EPERM", ""},
		{"own memory by /proc", []string{"open-write", "/proc/self/mem"}, "EACCES", ""},
		{"cgroup files", []string{"list", "/sys/fs/cgroup"}, "ENOENT", ""},
		{"sysfs", []string{"list", "/sys/kernel"}, "ENOENT", ""},
		{"the host's one pool of aio requests", []string{"io_setup", "1024"}, "EPERM", ""},
	}
}

// TestAttackKernel: chat A tries every system call and kernel file that leads
// out of its session.
func TestAttackKernel(t *testing.T) {
	m := open(t, attackOptions(t))
	a := inmateOf(t, m, "kernel", "web")
	for _, c := range append(kernelCases(a), x86Cases...) {
		t.Run(c.name, func(t *testing.T) {
			got, root := a.try(t, c.do...), ""
			control := make([]string, len(c.do))
			for i, arg := range c.do {
				control[i] = strings.Replace(arg, a.Home, rootsPlace(t), 1)
			}
			root = asHost(t, control...)
			if lacks(root) && (got == root || got == "EPERM" || got == "EACCES") {
				t.Logf("NOT PROVED: this kernel has none of it: root %s, the chat %s", root, got)
				return
			}
			outcomes(t, "A", got, c.want)
			want := c.root
			if want == "" {
				want = "ok"
			}
			outcomes(t, "control: root on the host", root, want)
		})
	}
}

func lacks(outcome string) bool {
	switch outcome {
	case "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENOSYS", "EOPNOTSUPP", "ENOEXEC":
		return true
	}
	return false
}

// rootsPlace is where root's controls work, in place of the chat's home, with
// an attacker in it.
func rootsPlace(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("/srv", "root-"+strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' || r == '.' {
			return '-'
		}
		return r
	}, t.Name()))
	must.Do(t, os.MkdirAll(dir, 0o700))
	t.Cleanup(func() {
		unix.Unmount(dir, unix.MNT_DETACH) // the control of mount
		expect.NoError(t, os.RemoveAll(dir))
	})
	if err := os.Link(attacker(t), filepath.Join(dir, attackName)); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	return dir
}

// TestAttackPrograms: what the host's programs would do for anybody else.
func TestAttackPrograms(t *testing.T) {
	m := open(t, attackOptions(t))
	a := inmateOf(t, m, "programs", "default")
	t.Run("every program that gains privileges", func(t *testing.T) {
		got := a.try(t, "programs", "/usr")
		outcomes(t, "A", got, "ok")
		expect.True(t, got != "ok 0", "not one such program was found, so none was tried")
		host := asUserApart(t, a.UID, "programs", "/usr/bin")
		expect.True(t, strings.HasPrefix(host, "gained:"), "control: the same uid on the host: %s", host)
	})
	for name, prepare := range map[string]func(string) error{
		"setuid root": func(p string) error { return os.Chmod(p, 0o755|os.ModeSetuid) },
		"setgid root": func(p string) error { return os.Chmod(p, 0o755|os.ModeSetgid) },
	} {
		// An operator's slip: such a program in the chat's own home.
		t.Run(name+" in its home", func(t *testing.T) {
			p := a.in(strings.ReplaceAll(name, " ", "-"))
			content := must.Get(os.ReadFile(attacker(t)))(t)
			must.Do(t, os.WriteFile(p, content, 0o755))
			must.Do(t, prepare(p))
			outcomes(t, "A", a.try(t, "become", p), "EPERM")
			outcomes(t, "control: the same uid on the host", asUser(t, a.UID, "become", p), "ok")
		})
	}
	for name, argv := range map[string][]string{
		"nested bwrap":     {"run", "/usr/bin/bwrap", "--ro-bind", "/", "/", "--unshare-user", "/usr/bin/true"},
		"unshare, program": {"run", "/usr/bin/unshare", "-U", "/usr/bin/true"},
	} {
		t.Run(name, func(t *testing.T) {
			got := a.try(t, argv...)
			expect.True(t, got != "ok", "A: %s", got)
			outcomes(t, "control: the same uid on the host", asUser(t, a.UID, argv...), "ok")
		})
	}
	t.Run("identity", func(t *testing.T) {
		// The daemon's own groups are not for its chats.
		must.Do(t, syscall.Setgroups([]int{4, 42}))
		defer syscall.Setgroups(nil)
		for field, want := range map[string]string{
			"Groups": fmt.Sprint(a.UID), "CapEff": strings.Repeat("0", 16), "CapPrm": strings.Repeat("0", 16), "NoNewPrivs": "1", "Seccomp": "2",
		} {
			got := a.try(t, "status", field)
			if field == "Groups" && got == "ok" {
				continue // none at all is as good
			}
			expect.True(t, got == "ok "+want, "%s: got %q, want %s", field, got, want)
		}
		outcomes(t, "oom_score_adj", strings.TrimPrefix(a.try(t, "oom-is"), "ok "), "500")
	})
}
