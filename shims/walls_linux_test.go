package shims

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// Each wall has an attack that it stops, and that gets through when the wall
// alone is left out.
func TestWallsStopAttacks(t *testing.T) {
	v := newView(t)
	must.Do(t, os.WriteFile(v.Home+"/../outside", []byte("x"), 0o644))
	outside := strings.TrimSuffix(v.Home, "/home") + "/outside"
	hostTmp := must.Get(os.CreateTemp("", "chatd-shims-test-"))(t)
	defer os.Remove(hostTmp.Name())
	must.Do(t, hostTmp.Chmod(0o644))
	abstract := "chatd-shims-test-" + strconv.Itoa(os.Getpid())
	l := must.Get(net.Listen("unix", "@"+abstract))(t)
	defer l.Close()
	self := strconv.Itoa(os.Getpid())
	for _, c := range append(slices.Concat(callAttacks(), optionAttacks(), deviceAttacks()), []wallAttack{
		{"host file", chat.LayerView, []string{"stat", outside}, "ENOENT", "ok"},
		{"host /sys", chat.LayerView, []string{"stat", "/sys/kernel"}, "ENOENT", "ok"},
		{"host tmp", chat.LayerTmp, []string{"read", hostTmp.Name()}, "ENOENT", "ok"},
		{"pid of a neighbour", chat.LayerProc, []string{"kill", self}, "ESRCH", "EPERM"},
		{"status of a neighbour", chat.LayerProc, []string{"stat", "/proc/" + self + "/status"}, "ENOENT", "ok"},
		{"abstract socket", chat.LayerNetwork, []string{"abstract", abstract}, "ECONNREFUSED", "ok"},
		{"list the root", chat.LayerLandlock, []string{"list", "/"}, "EACCES", "ok"},
		{"lower the OOM score", chat.LayerLandlock, []string{"write", "/proc/self/oom_score_adj"}, "EACCES", "EINVAL"},
		{"the shim is not the chat's", "", []string{"write", plan.InsideShim}, "EROFS", ""},
		{"nor is the fifo's mode", "", []string{"chmod", plan.InsidePrompt}, "EROFS", ""},
		{"nor is a data file", "", []string{"chmod", "/etc/passwd"}, "EROFS", ""},
	}...) {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, attacked(t, v, c.attack...), c.want, "with every wall")
			if c.wall == "" {
				return
			}
			open := v
			open.Without = []chat.LayerName{c.wall}
			expect.Equal(t, attacked(t, open, c.attack...), c.without, "without %s", c.wall)
		})
	}
}

// attacked is how the kernel answers an attack from within.
func attacked(t *testing.T, v plan.View, attack ...string) string {
	t.Helper()
	out, _, _ := runIn(t, v, append([]string{v.Home + "/attack"}, attack...)...)
	return out
}

// wallAttack is one attack with the wall that stops it, and what the kernel
// answers with every wall and without that one. No wall: it is only tried whole.
type wallAttack struct {
	name          string
	wall          chat.LayerName
	attack        []string
	want, without string
}

func call(n ...uint64) []string {
	out := []string{"syscall"}
	for _, x := range n {
		out = append(out, strconv.FormatUint(x, 10))
	}
	return out
}

const cachestat = 451 // since Linux 6.5

func cachestatSays() string {
	_, _, e := unix.Syscall6(cachestat, 99, 0, 0, 0, 0, 0)
	return unix.ErrnoName(e)
}

// callAttacks are for the filter. high is a bit that the kernel drops.
func callAttacks() []wallAttack {
	const high = 1 << 32
	return []wallAttack{
		{"TIOCSTI", chat.LayerSeccomp, call(unix.SYS_IOCTL, 99, unix.TIOCSTI), "EPERM", "EBADF"},
		{"TIOCSTI with high bits", chat.LayerSeccomp, call(unix.SYS_IOCTL, 99, high|unix.TIOCSTI), "EPERM", "EBADF"},
		{"TIOCLINUX", chat.LayerSeccomp, call(unix.SYS_IOCTL, 99, high|unix.TIOCLINUX), "EPERM", "EBADF"},
		{"vsock", chat.LayerSeccomp, call(unix.SYS_SOCKET, high|unix.AF_VSOCK, unix.SOCK_STREAM, 0), "EPERM", vsock()},
		{"netlink connector", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_DGRAM, high|unix.NETLINK_CONNECTOR), "EPERM", netlink(unix.NETLINK_CONNECTOR)},
		{"netlink audit", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_USERSOCK), "EPERM", "ok"},
		{"netlink route", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, high), "EAFNOSUPPORT", "ok"},
		{"tcp", "", call(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM, 0), "ok", ""},
		{"mptcp", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), "EPROTONOSUPPORT", socketSays(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)},
		{"ping", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP), "EPERM", "EACCES"},
		{"sctp by its type", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_INET, high|unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0), "EPERM", socketSays(unix.AF_INET, unix.SOCK_SEQPACKET, 0)},
		{"dccp by its type", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DCCP|unix.SOCK_NONBLOCK, 0), "EPERM", socketSays(unix.AF_INET6, unix.SOCK_DCCP, 0)},
		{"seqpacket of AF_UNIX", "", call(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0), "ok", ""},
		{"odd protocol", chat.LayerSeccomp, call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 136), "EPERM", udplite()},
		{"socketpair of another family", chat.LayerSeccomp, call(unix.SYS_SOCKETPAIR, unix.AF_INET, unix.SOCK_STREAM, 0, 0), "EPERM", "EFAULT"},
		{"io_uring", chat.LayerSeccomp, call(unix.SYS_IO_URING_SETUP, 0, 0), "EPERM", "EFAULT"},
		{"policy of memory", chat.LayerSeccomp, call(unix.SYS_MBIND, 1, 0, 0, 0, 0, 0), "EPERM", "EINVAL"},
		{"keyctl", chat.LayerSeccomp, call(unix.SYS_KEYCTL, 99), "EPERM", "ENOTSUP"},
		{"bpf", chat.LayerSeccomp, call(unix.SYS_BPF, 99, 0, 0), "EPERM", "EINVAL"},
		{"unshare", chat.LayerSeccomp, call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), "EPERM", "EINVAL"}, // it has threads
		{"clone3", chat.LayerSeccomp, call(unix.SYS_CLONE3, 0, 0), "ENOSYS", "EINVAL"},
		{"clone a user namespace", chat.LayerSeccomp, call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uint64(unix.SIGCHLD)), "EPERM", "ENOSPC"},
		{"fast open", chat.LayerSeccomp, call(unix.SYS_SENDTO, 99, 0, 0, unix.MSG_FASTOPEN), "ENOTSUP", "EBADF"},
		{"fast open by option", chat.LayerSeccomp, call(unix.SYS_SETSOCKOPT, 99, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT), "ENOTSUP", "EBADF"},
		{"a further filter", chat.LayerSeccomp, call(unix.SYS_SECCOMP, high|unix.SECCOMP_SET_MODE_FILTER, 0, 0), "EINVAL", "EFAULT"},
		{"a further filter by prctl", chat.LayerSeccomp, call(unix.SYS_PRCTL, high|unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0), "EINVAL", "EFAULT"},
		{"which actions filters have", "", call(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, 0), "EFAULT", ""},
		{"lock of an open file", chat.LayerSeccomp, call(unix.SYS_FCNTL, 99, high|unix.F_OFD_SETLK, 0), "EINVAL", "EBADF"},
		{"waiting lock of an open file", chat.LayerSeccomp, call(unix.SYS_FCNTL, 99, unix.F_OFD_SETLKW, 0), "EINVAL", "EBADF"},
		{"dropping pages", chat.LayerSeccomp, call(unix.SYS_FADVISE64, 99, 0, 0, high|unix.FADV_DONTNEED), "ok", "EBADF"},
		{"advice of another kind", "", call(unix.SYS_FADVISE64, 99, 0, 0, unix.FADV_SEQUENTIAL), "EBADF", ""},
		{"counting pages", chat.LayerSeccomp, call(cachestat, 99, 0, 0, 0), "EPERM", cachestatSays()},
		{"lock of a process", "", call(unix.SYS_FCNTL, 99, unix.F_SETLK, 0), "EBADF", ""},
		// The kernel refuses CLONE_SIGHAND without CLONE_VM.
		{"share descriptors", chat.LayerSeccomp, call(unix.SYS_CLONE, unix.CLONE_FILES|unix.CLONE_SIGHAND, 0), "EPERM", "EINVAL"},
		{"x32", chat.LayerSeccomp, call(0x40000000|unix.SYS_GETPID, 0), "ENOSYS", "ENOSYS"},
	}
}

// optionAttacks set options on a descriptor that is not there: EBADF is a filter that
// lets them pass, "ok" one that leaves them undone.
func optionAttacks() []wallAttack {
	const high = 1 << 32
	var out []wallAttack
	for _, c := range []struct {
		name          string
		level, option uint64
		want          string
	}{
		{"time stamps", unix.SOL_SOCKET, unix.SO_TIMESTAMPING, "ENOPROTOOPT"},
		{"time stamps, high bits", high | unix.SOL_SOCKET, high | unix.SO_TIMESTAMPING, "ENOPROTOOPT"},
		{"new time stamps", unix.SOL_SOCKET, unix.SO_TIMESTAMPING_NEW, "ENOPROTOOPT"},
		{"zero copy", unix.SOL_SOCKET, unix.SO_ZEROCOPY, "ENOPROTOOPT"},
		{"transmit times", unix.SOL_SOCKET, unix.SO_TXTIME, "ENOPROTOOPT"},
		{"a filter", unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, "ENOPROTOOPT"},
		{"a loaded filter", unix.SOL_SOCKET, unix.SO_ATTACH_BPF, "ENOPROTOOPT"},
		{"a filter of a group", unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, "ENOPROTOOPT"},
		{"a loaded filter of a group", unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, "ENOPROTOOPT"},
		{"reserved memory", unix.SOL_SOCKET, unix.SO_RESERVE_MEM, "ENOPROTOOPT"},
		{"size of what is sent", unix.SOL_SOCKET, unix.SO_SNDBUF, "ok"},
		{"size of what is received", unix.SOL_SOCKET, unix.SO_RCVBUF, "ok"},
		{"errors", unix.IPPROTO_IP, unix.IP_RECVERR, "ok"},
		{"errors, IPv6", unix.IPPROTO_IPV6, unix.IPV6_RECVERR, "ok"},
		{"a multicast group", unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, "ENOPROTOOPT"},
		{"a multicast group, IPv6", unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, "ENOPROTOOPT"},
		{"a multicast group of either", unix.IPPROTO_IPV6, unix.MCAST_JOIN_GROUP, "ENOPROTOOPT"},
		{"flow labels", unix.IPPROTO_IPV6, 32, "ENOPROTOOPT"},
		{"packet filter tables", unix.IPPROTO_IP, 64, "ENOPROTOOPT"},
		{"keys of TCP", unix.IPPROTO_TCP, unix.TCP_MD5SIG, "ENOPROTOOPT"},
		{"another protocol over TCP", unix.IPPROTO_TCP, unix.TCP_ULP, "ENOPROTOOPT"},
		{"a corked datagram", unix.IPPROTO_UDP, unix.UDP_CORK, "ENOPROTOOPT"},
		{"another level", unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, "ENOPROTOOPT"},
		{"reuse of an address", unix.SOL_SOCKET, unix.SO_REUSEADDR, "EBADF"},
		{"no delay", unix.IPPROTO_TCP, unix.TCP_NODELAY, "EBADF"},
		{"IPv6 alone", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, "EBADF"},
		{"type of service", unix.IPPROTO_IP, unix.IP_TOS, "EBADF"},
		{"segments of a datagram", unix.IPPROTO_UDP, unix.UDP_SEGMENT, "EBADF"},
	} {
		out = append(out, wallAttack{"option: " + c.name, chat.LayerSeccomp, call(unix.SYS_SETSOCKOPT, 99, c.level, c.option), c.want, "EBADF"})
	}
	return out
}

// deviceAttacks make nodes without a path, so that only the filter refuses them.
func deviceAttacks() []wallAttack {
	const high, here = 1 << 32, uint64(unix.AT_FDCWD & 0xffffffff)
	var out []wallAttack
	for _, c := range []struct {
		name string
		mode uint64
		want string
	}{
		{"whiteout", unix.S_IFCHR | 0o600, "EPERM"}, {"whiteout with high bits", high | 1<<16 | unix.S_IFCHR, "EPERM"},
		{"disk", unix.S_IFBLK, "EPERM"}, {"FIFO", unix.S_IFIFO | 0o777, "EFAULT"}, {"socket", unix.S_IFSOCK | 0o7777, "EFAULT"},
		{"file", unix.S_IFREG | 0o600, "EFAULT"}, {"file by no type", 0o600, "EFAULT"},
	} {
		out = append(out, wallAttack{"mknodat " + c.name, chat.LayerSeccomp, call(unix.SYS_MKNODAT, here, 0, c.mode, 0), c.want, "EFAULT"})
		if runtime.GOARCH == "amd64" { // the number is 133 there, and mknod(2) not everywhere
			out = append(out, wallAttack{"mknod " + c.name, chat.LayerSeccomp, call(133, 0, c.mode, 0), c.want, "EFAULT"})
		}
	}
	return append(out,
		wallAttack{"rename and leave a whiteout", chat.LayerSeccomp, call(unix.SYS_RENAMEAT2, here, 0, here, 0, unix.RENAME_WHITEOUT), "EINVAL", "EFAULT"},
		wallAttack{"rename and keep what is there", chat.LayerSeccomp, call(unix.SYS_RENAMEAT2, here, 0, here, 0, unix.RENAME_NOREPLACE), "EFAULT", "EFAULT"})
}

// What the kernel says where no filter stands, tried by this process: these
// families are not in every kernel.
func socketSays(family, kind, protocol int) string {
	fd, err := unix.Socket(family, kind, protocol)
	if err != nil {
		return unix.ErrnoName(err.(unix.Errno))
	}
	unix.Close(fd)
	return "ok"
}

func vsock() string        { return socketSays(unix.AF_VSOCK, unix.SOCK_STREAM, 0) }
func netlink(p int) string { return socketSays(unix.AF_NETLINK, unix.SOCK_DGRAM, p) }
func udplite() string      { return socketSays(unix.AF_INET, unix.SOCK_DGRAM, 136) }
func layerOf(ls []chat.Layer, n chat.LayerName) chat.Layer {
	i := slices.IndexFunc(ls, func(l chat.Layer) bool { return l.Name == n })
	if i < 0 {
		return chat.Layer{Name: n, State: "absent"}
	}
	return ls[i]
}

// What a profile opens passes, and nothing else with it.
func TestOpened(t *testing.T) {
	v := newView(t)
	v.Opened = plan.Openings{Netlink: true, Filters: true}
	for _, c := range []struct {
		attack []string
		want   string
	}{
		{call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), "ok"},
		{call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT), "EPERM"},
		{call(unix.SYS_SETSOCKOPT, 99, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK), "EBADF"},
		{call(unix.SYS_SETSOCKOPT, 99, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER), "ENOPROTOOPT"},
		{call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, 0), "EFAULT"},
		{call(unix.SYS_BPF, 99, 0, 0), "EPERM"},
	} {
		expect.Equal(t, attacked(t, v, c.attack...), c.want, "%v", c.attack)
	}
}

func TestForeignArchitectureIsKilled(t *testing.T) {
	need(t, runtime.GOARCH == "amd64", "amd64: the attack is in its machine code")
	v := newView(t)
	with := attacked(t, v, "foreign", "/tmp")
	v.Without = []chat.LayerName{chat.LayerSeccomp}
	without := attacked(t, v, "foreign", "/tmp")
	if without == "segmentation fault" && with == without {
		t.Log("NOT PROVED: this kernel has no calls of i386")
		return
	}
	expect.True(t, with == "bad system call" && without == "ok",
		"with the filter: %s, want bad system call; without: %s, want ok", with, without)
}

// The probe says on for every wall, and not on for the one that is left out.
func TestProbe(t *testing.T) {
	v := newView(t)
	l := must.Get(net.Listen("unix", "@chatd-shims-probe-"+strconv.Itoa(os.Getpid())))(t)
	defer l.Close()
	probe := func(t *testing.T, without ...chat.LayerName) []chat.Layer {
		v := v
		v.Without = without
		out, code, _ := runIn(t, v, plan.InsideShim, "probe", "--abstract", strings.TrimPrefix(l.Addr().String(), "@"), "--pid", strconv.Itoa(os.Getpid()))
		var layers []chat.Layer
		must.True(t, json.Unmarshal([]byte(out), &layers) == nil && code == 0,
			"probe ended with %d and said %s", code, out)
		return layers
	}
	whole := probe(t)
	for _, got := range whole {
		want := chat.LayerOn
		if got.State != want || got.By == "" || got.Probe == "" || got.Fix == "" == (want != chat.LayerOn) {
			t.Errorf("%s: %s by %q, fix %q: %s; want %s", got.Name, got.State, got.By, got.Fix, got.Probe, want)
		}
		t.Logf("%s by %s: %s", got.Name, got.By, got.Probe)
	}
	for _, n := range []chat.LayerName{chat.LayerTmp, chat.LayerNetwork, chat.LayerProc, chat.LayerView,
		chat.LayerLandlock, chat.LayerSeccomp, chat.LayerPrivileges, chat.LayerPath} {
		t.Run("without "+string(n), func(t *testing.T) {
			got := layerOf(probe(t, n), n)
			expect.True(t, got.State != chat.LayerOn && got.State != "absent" && got.Fix != "",
				"%s: %s, fix %q: %s", n, got.State, got.Fix, got.Probe)
			t.Logf("%s: %s", got.State, got.Probe)
		})
	}
	must.Do(t, os.Chmod(v.Home, 0o755))
	got := layerOf(probe(t), chat.LayerHome)
	expect.True(t, got.State != chat.LayerOn, "home with mode 0755: %s", got.Probe)
}

// What a session may write, exactly. Landlock is left out, because it hides
// nothing from access(2) and would stop the search.
func TestWritablePlaces(t *testing.T) {
	v := newView(t)
	v.Without = []chat.LayerName{chat.LayerLandlock}
	out, code, _ := runIn(t, v, v.Home+"/attack", "writable")
	want := []string{v.Home, "/tmp", "/var/tmp", "/dev/shm", plan.InsideRun, plan.InsidePrompt, "/dev/full", "/dev/null",
		"/dev/pts", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"}
	got := strings.Split(out, "\n")
	slices.Sort(want)
	slices.Sort(got)
	expect.True(t, code == 0 && slices.Equal(got, want),
		"exit %d, writable:\n%s\nwant:\n%s", code, strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func TestTmpfsSizes(t *testing.T) {
	v := newView(t)
	v.Limits.ShmSize = 1 << 20
	for dir, want := range map[string]string{"/dev/shm": "1024", plan.InsideRun: "1024"} {
		out, _, _ := runIn(t, v, "df", "--output=size", dir)
		f := strings.Fields(out)
		expect.True(t, f[len(f)-1] == want, "%s has %s KiB, want %s", dir, out, want)
	}
	out, code, _ := runIn(t, v, "sh", "-c", fmt.Sprintf("head -c 2000000 /dev/zero > %s/x", plan.InsideRun))
	expect.True(t, code != 0 && strings.Contains(out, "No space"),
		"wrote 2 MB into %s: %s", plan.InsideRun, out)
}

// TestDeniedIsLeftOut: where file rules close what a session is shown, Landlock grants
// nothing there, whether the enforcer keeps them or not, by no link either; what lies beside
// is as it was. Without Landlock it is read.
func TestDeniedIsLeftOut(t *testing.T) {
	v := newView(t)
	shared := filepath.Dir(v.Home) + "/shared"
	for _, f := range []string{"open/f", "secret/f", "in/deep/secret/f", "in/deep/f"} {
		must.Do(t, os.MkdirAll(filepath.Join(shared, filepath.Dir(f)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(shared, f), []byte("x"), 0o644))
	}
	must.Do(t, os.Symlink("secret/f", shared+"/link"))
	must.Do(t, os.Symlink("secret", shared+"/way"))
	v.Exposed = []chat.Exposed{{Source: shared, Target: "/data", Mode: chat.ReadOnly}, {Source: shared + "/secret", Target: "/whole", Mode: chat.ReadWrite}}
	const doc = "/usr/share/doc"
	granted := v
	v.Denied = []string{"/data/secret", "/data/in/deep/secret", "/whole", doc, v.Home + "/x", "/tmp/x"}
	got, want := v.LeftOut(), []string{"/data/secret", "/data/in/deep/secret", "/whole", doc}
	expect.True(t, slices.Equal(got, want), "left out are %q, want %q", got, want)
	open := v
	open.Without = []chat.LayerName{chat.LayerLandlock}
	for _, c := range []struct{ do, path, want string }{
		{"read", "/data/secret/f", "EACCES"}, {"read", "/data/in/deep/secret/f", "EACCES"}, {"read", "/data/link", "EACCES"},
		{"read", "/data/way/f", "EACCES"}, {"read", "/whole/f", "EACCES"},
		{"read", "/data/open/f", "ok"}, {"read", "/data/in/deep/f", "ok"}, {"list", "/data", "ok"}, {"list", "/data/in/deep", "ok"},
		{"list", "/usr/share", "ok"}, {"read", "/usr/bin/env", "ok"}, {"read", "/bin/sh", "ok"},
	} {
		for name, tt := range map[string]struct {
			v    plan.View
			want string
		}{"denied": {v, c.want}, "not denied": {granted, "ok"}, "without Landlock": {open, "ok"}} {
			expect.Equal(t, attacked(t, tt.v, c.do, c.path), tt.want, "%s: %s %s", name, c.do, c.path)
		}
	}
}

// TestDeniedBesideMuch: a directory with more in it than can be granted one by one is granted
// whole, and said not to be left out.
func TestDeniedBesideMuch(t *testing.T) {
	dir := t.TempDir()
	for i := range plan.MaxBeside + 1 {
		must.Do(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i%26))+filepath.Base(t.Name())+string(rune(0x4e00+i))), nil, 0o644))
	}
	v := plan.View{Home: "/srv/x", Exposed: []chat.Exposed{{Source: dir, Target: "/data", Mode: chat.ReadOnly}}, Denied: []string{"/data/secret"}}
	got := v.LeftOut()
	expect.True(t, len(got) == 0, "left out are %q", got)
	expect.True(t, slices.Contains(v.Rules().Read, "/data"), "nothing is granted instead")
}

// TestMasked: what is masked cannot be opened, with nobody else who keeps it; without the mask it
// can.
func TestMasked(t *testing.T) {
	v := newView(t)
	masks := filepath.Dir(v.Home) + "/masks"
	must.Do(t, errors.Join(os.Mkdir(masks, 0o711), os.Mkdir(masks+"/directory", 0), os.WriteFile(masks+"/file", nil, 0)))
	for _, f := range []string{"/keys/k", "/note", "/open"} {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(v.Home+f), 0o755), os.WriteFile(v.Home+f, []byte("x"), 0o644)))
	}
	masked := v
	masked.Masked = []chat.Exposed{{Source: masks + "/directory", Target: v.Home + "/keys", Mode: chat.ReadOnly}, {Source: masks + "/file", Target: v.Home + "/note", Mode: chat.ReadOnly, File: true}}
	for _, c := range []struct{ do, path, want string }{
		{"read", "/keys/k", "EACCES"}, {"list", "/keys", "EACCES"}, {"read", "/note", "EACCES"}, {"read", "/open", "ok"},
	} {
		expect.Equal(t, attacked(t, masked, c.do, v.Home+c.path), c.want, "%s %s", c.do, c.path)
		expect.Equal(t, attacked(t, v, c.do, v.Home+c.path), "ok", "without masks: %s %s", c.do, c.path)
	}
}
