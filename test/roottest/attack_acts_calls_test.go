package roottest

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// callActs are system calls that lead out of a session, or into parts of the
// kernel that a chat has no business in. Those that could do harm where they are
// allowed get arguments that the kernel refuses after the permission.
var callActs = map[string]act{
	"socket": func(a []string) (string, error) {
		return closing(unix.Socket(number(a[0]), number(a[1])|unix.SOCK_CLOEXEC, number(a[2])))
	},
	"keyctl":       raw(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, math.MaxUint64-3, 1), // -4: the user keyring
	"add_key":      addKey,
	"io_uring":     func([]string) (string, error) { return ioUring() },
	"io_setup":     ioSetup,
	"bpf":          bpfMap,
	"perf":         perfEvent,
	"userfaultfd":  rawFD(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1), // 1: UFFD_USER_MODE_ONLY, which needs no privilege
	"fanotify":     rawFD(unix.SYS_FANOTIFY_INIT, unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, 0),
	"tiocsti":      raw(unix.SYS_IOCTL, math.MaxUint64, unix.TIOCSTI, 0),
	"tiocsti-high": raw(unix.SYS_IOCTL, math.MaxUint64, 1<<32|unix.TIOCSTI, 0),
	"tioclinux":    raw(unix.SYS_IOCTL, math.MaxUint64, unix.TIOCLINUX, 0),
	"setns":        setNS,
	"unshare":      func(a []string) (string, error) { return "", unix.Unshare(number(a[0])) },
	"clone":        cloneInto,
	"clone3":       clone3,
	"mount":        func(a []string) (string, error) { return "", unix.Mount("none", a[0], "tmpfs", 0, "size=64k") },
	"umount":       func(a []string) (string, error) { return "", unix.Unmount(a[0], unix.MNT_DETACH) },
	"remount": func(a []string) (string, error) {
		return "", unix.Mount("", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "")
	},
	"fsopen": fsOpen,
	"open_tree": func(a []string) (string, error) {
		return closing(unix.OpenTree(unix.AT_FDCWD, a[0], unix.OPEN_TREE_CLOEXEC))
	},
	"chroot":     func(a []string) (string, error) { return "", unix.Chroot(a[0]) },
	"pivot_root": func(a []string) (string, error) { return "", unix.PivotRoot(a[0], a[0]) },
	"mknod":      func(a []string) (string, error) { return "", unix.Mknod(a[0], uint32(number(a[1])), number(a[2])) },
	"dmesg": func([]string) (string, error) {
		_, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 16))
		return "", err
	},
	"finit_module":  raw(unix.SYS_FINIT_MODULE, math.MaxUint64, 0, 0),
	"kexec_load":    raw(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff),
	"reboot":        raw(unix.SYS_REBOOT, 0, 0, 0, 0), // not the magic numbers
	"swapoff":       func(a []string) (string, error) { return "", path1(unix.SYS_SWAPOFF, "/no-such-file-of-chatd") },
	"acct":          func(a []string) (string, error) { return "", path1(unix.SYS_ACCT, "/no-such-file-of-chatd") },
	"quotactl":      raw(unix.SYS_QUOTACTL, 0, 0, 0, 0),
	"settimeofday":  raw(unix.SYS_SETTIMEOFDAY, 0, 0),
	"adjtimex-set":  raw(unix.SYS_CLOCK_ADJTIME, 0, 0),
	"sethostname":   raw(unix.SYS_SETHOSTNAME, 0, 65),
	"kcmp":          raw(unix.SYS_KCMP, 1, 1, 0, 0),
	"fastopen-send": raw(unix.SYS_SENDTO, math.MaxUint64, 0, 0, unix.MSG_FASTOPEN, 0, 0),
}

func raw(nr uintptr, args ...uintptr) act {
	var six [6]uintptr
	copy(six[:], args)
	return func([]string) (string, error) {
		_, _, e := unix.Syscall6(nr, six[0], six[1], six[2], six[3], six[4], six[5])
		return "", errno(e)
	}
}

func rawFD(nr uintptr, args ...uintptr) act {
	var six [3]uintptr
	copy(six[:], args)
	return func([]string) (string, error) {
		fd, _, e := unix.Syscall(nr, six[0], six[1], six[2])
		return closing(int(fd), errno(e))
	}
}

func path1(nr uintptr, p string) error {
	b := append([]byte(p), 0)
	_, _, e := unix.Syscall(nr, uintptr(unsafe.Pointer(&b[0])), 0, 0)
	return errno(e)
}

func addKey([]string) (string, error) {
	_, err := unix.AddKey("user", "chatd-attack", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return "", err
}

func ioUring() (string, error) {
	var params [120]byte
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0)
	return closing(int(fd), errno(e))
}

// ioSetup reserves asynchronous requests, of which the host has one pool
// (/proc/sys/fs/aio-max-nr), and gives them back.
func ioSetup(a []string) (string, error) {
	var ctx uintptr
	_, _, e := unix.Syscall(unix.SYS_IO_SETUP, uintptr(number(a[0])), uintptr(unsafe.Pointer(&ctx)), 0)
	if e != 0 {
		return "", e
	}
	_, _, e = unix.Syscall(unix.SYS_IO_DESTROY, ctx, 0, 0)
	return "", errno(e)
}

// bpfMap makes an array of one element: BPF_MAP_CREATE, BPF_MAP_TYPE_ARRAY.
func bpfMap([]string) (string, error) {
	attr := [16]uint32{2, 4, 4, 1}
	fd, _, e := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr[0])), unsafe.Sizeof(attr))
	return closing(int(fd), errno(e))
}

// perfEvent counts this process's own page faults, in user mode only.
func perfEvent([]string) (string, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	return closing(unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC))
}

func fsOpen([]string) (string, error) {
	return closing(unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC))
}

func setNS(a []string) (string, error) {
	fd, err := unix.Open("/proc/self/ns/"+a[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", unix.Setns(fd, 0)
}

// cloneInto starts a child in a namespace of its own.
func cloneInto(a []string) (string, error) {
	cmd := exec.Command("/usr/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: uintptr(number(a[0]))}
	return "", cmd.Run()
}

// clone3 does so by the call whose flags no filter can read.
func clone3(a []string) (string, error) {
	cloneArgs := [11]uint64{0: uint64(number(a[0])), 4: uint64(unix.SIGCHLD)}
	pid, _, e := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&cloneArgs[0])), 64, 0)
	if e != 0 {
		return "", e
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return "", err
}

// credentialActs try to become more than the chat is.
var credentialActs = map[string]act{
	"setuid":    func(a []string) (string, error) { return "", unix.Setuid(number(a[0])) },
	"setgid":    func(a []string) (string, error) { return "", unix.Setgid(number(a[0])) },
	"setgroups": func(a []string) (string, error) { return "", unix.Setgroups([]int{number(a[0])}) },
	"uid": func([]string) (string, error) {
		return fmt.Sprint(os.Getuid(), " ", os.Geteuid(), " ", os.Getegid()), nil
	},
	"oom": func(a []string) (string, error) { return "", os.WriteFile("/proc/self/oom_score_adj", []byte(a[0]), 0) },
	"oom-is": func([]string) (string, error) {
		b, err := os.ReadFile("/proc/self/oom_score_adj")
		return string(b), err
	},
	"raise": raiseLimit,
	"capability": func(a []string) (string, error) {
		return "", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(number(a[0])), 0, 0)
	},
	"securebits": func([]string) (string, error) { return "", unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0) },
	"become":     becomeRootByFile,
}

// raiseLimit asks for one more than the hard limit (setrlimit(2)).
func raiseLimit(a []string) (string, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(number(a[0]), &l); err != nil {
		return "", err
	}
	l.Max++
	return "", unix.Setrlimit(number(a[0]), &l)
}

// becomeRootByFile runs a setuid, setgid or capable copy of this program, which reports its ids.
func becomeRootByFile(a []string) (string, error) {
	cmd := exec.Command(a[0], "uid")
	cmd.Args[0] = attackName
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	u := strconv.Itoa(os.Getuid())
	if string(out) == fmt.Sprintf("ok %s %s %s\n", u, u, strconv.Itoa(os.Getgid())) {
		return "", unix.EPERM
	}
	return string(out), nil
}
