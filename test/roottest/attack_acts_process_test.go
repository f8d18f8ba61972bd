package roottest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processActs are what an attacker does to processes.
var processActs = map[string]act{
	// seek looks for a word in what /proc tells of any process.
	"seek": func(a []string) (string, error) {
		for _, file := range []string{"cmdline", "environ", "comm", "status"} {
			found, _ := filepath.Glob("/proc/[0-9]*/" + file)
			for _, p := range found {
				if p == fmt.Sprintf("/proc/%d/%s", os.Getpid(), file) {
					continue // it has the word as its argument
				}
				if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(a[0])) {
					return p, nil
				}
			}
		}
		return "", unix.ESRCH
	},
	"kill":  func(a []string) (string, error) { return "", unix.Kill(number(a[0]), unix.Signal(number(a[1]))) },
	"pidfd": func(a []string) (string, error) { return closing(unix.PidfdOpen(number(a[0]), 0)) },
	"ptrace": func(a []string) (string, error) {
		runtime.LockOSThread()
		pid := number(a[0])
		check(unix.PtraceAttach(pid))
		value(unix.Wait4(pid, nil, unix.WALL, nil))
		return "", unix.PtraceDetach(pid)
	},
	"memory-of": func(a []string) (string, error) {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(number(a[0]), []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0, Len: 8}}, 0)
		if err == unix.EFAULT {
			err = nil // it was allowed to look, and there is nothing at 0
		}
		return "", err
	},
	"limits-of": func(a []string) (string, error) {
		var l unix.Rlimit
		return "", unix.Prlimit(number(a[0]), unix.RLIMIT_NOFILE, nil, &l)
	},
	"priority-of-uid": func(a []string) (string, error) {
		value(unix.Getpriority(unix.PRIO_USER, number(a[0])))
		return "", nil
	},
	"cpus-of": func(a []string) (string, error) {
		var s unix.CPUSet
		return "", unix.SchedGetaffinity(number(a[0]), &s)
	},
	"self": func([]string) (string, error) { return strconv.Itoa(os.Getpid()), nil },
	// child-then does an act to a child of its own: the positive control.
	"child-then": func(a []string) (string, error) {
		cmd := exec.Command("sleep", "100")
		check(cmd.Start())
		defer cmd.Wait()
		defer cmd.Process.Kill()
		return acts[a[0]](append([]string{strconv.Itoa(cmd.Process.Pid)}, a[1:]...))
	},
	"ambush":   ambush,
	"i386":     i386,
	"run":      func(a []string) (string, error) { return "", exec.Command(a[0], a[1:]...).Run() },
	"status":   func(a []string) (string, error) { return statusField(os.Getpid(), a[0]) },
	"programs": gainingPrograms,
}

func statusField(pid int, name string) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(b), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Join(strings.Fields(line), " "), err
}

// ambush waits for commands that chatd sends into the session, and tries to
// take each one over in the moment when it has joined and is not confined yet:
// by tracing it and by opening its memory and its descriptors. It goes on until
// the file a[0] is there, and says how many it met; a[0].waits is there once it waits, a[0].met
// once it met one.
func ambush(a []string) (string, error) {
	runtime.LockOSThread()
	met := map[string]bool{}
	check(os.WriteFile(a[0]+".waits", nil, 0o600))
	for unix.Access(a[0], unix.F_OK) != nil {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			b, err := os.ReadFile(dir + "/cmdline")
			if err != nil || !bytes.Contains(b, []byte("--plan-fd")) || !bytes.Contains(b, []byte("chatd-shim\x00confine")) || dir == "/proc/1" {
				continue
			}
			if len(met) == 0 {
				check(os.WriteFile(a[0]+".met", nil, 0o600))
			}
			met[dir] = true
			if what := takeOver(dir); what != "" {
				return what, nil
			}
		}
	}
	return "", fmt.Errorf("met %d, took over none", len(met))
}

func takeOver(dir string) string {
	pid, _ := strconv.Atoi(filepath.Base(dir))
	if fd, err := unix.Open(dir+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
		return "memory of " + dir
	}
	// The directory shows which descriptors are open; their targets are visible only to a process
	// that may trace it.
	fds, _ := filepath.Glob(dir + "/fd/*")
	for _, p := range fds {
		if to, err := os.Readlink(p); err == nil {
			return "descriptor " + p + " of " + to
		}
	}
	if err := unix.PtraceAttach(pid); err == nil {
		unix.PtraceDetach(pid)
		return "trace of " + dir
	}
	return ""
}

// elf386 is a whole 32-bit program: mov eax,1; mov ebx,42; int 0x80, which is
// exit(42) by the system call table of another architecture.
var elf386 = append([]byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"+
	"\x02\x00\x03\x00\x01\x00\x00\x00\x54\x80\x04\x08\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00"+
	"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08\x60\x00\x00\x00\x60\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00"),
	"\xb8\x01\x00\x00\x00\xbb\x2a\x00\x00\x00\xcd\x80"...)

// i386 makes system calls of another architecture, which a filter by number
// would take for others.
func i386(a []string) (string, error) {
	p := filepath.Join(a[0], "i386")
	check(os.WriteFile(p, elf386, 0o700))
	err := exec.Command(p).Run()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 42 {
		return "", nil
	}
	if exit, ok := err.(*exec.ExitError); ok && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS {
		return "", errors.New("bad-system-call")
	}
	return "", err
}

// gainingPrograms starts every program below the directories that is setuid,
// setgid or has file capabilities, and watches whether it becomes anybody else.
// It says how many it tried; one that gained something is the error.
func gainingPrograms(roots []string) (string, error) {
	tried := 0
	var gained []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !gains(p) {
				return nil
			}
			tried++
			if as := startedAs(p); as != "" {
				gained = append(gained, p+" as "+as)
			}
			return nil
		})
		check(err)
	}
	if len(gained) > 0 {
		return "", fmt.Errorf("gained: %s", strings.Join(gained, ", "))
	}
	return strconv.Itoa(tried), nil
}

func gains(p string) bool {
	var st unix.Stat_t
	if unix.Lstat(p, &st) != nil {
		return false
	}
	n, err := unix.Lgetxattr(p, "security.capability", nil)
	return st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 || err == nil && n > 0
}

// startedAs starts a program on a pipe that says nothing and looks at it for a while: its effective
// uid, gid and capabilities, where they are not our own. With hidepid a child that is no longer
// visible has changed its ids: it was not waited for, so it still exists.
func startedAs(p string) string {
	cmd := exec.Command(p)
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return ""
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	defer in.Close()
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); {
		for _, f := range []string{"Uid", "Gid", "CapEff"} {
			own, _ := statusField(os.Getpid(), f)
			now, err := statusField(cmd.Process.Pid, f)
			if errors.Is(err, os.ErrNotExist) {
				return "somebody who is hidden"
			}
			if err == nil && now != "" && now != own {
				return f + " " + now
			}
		}
	}
	return ""
}

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
	fd := value(unix.Open("/proc/self/ns/"+a[0], unix.O_RDONLY|unix.O_CLOEXEC, 0))
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
	check(unix.Getrlimit(number(a[0]), &l))
	l.Max++
	return "", unix.Setrlimit(number(a[0]), &l)
}

// becomeRootByFile runs a setuid, setgid or capable copy of this program, which reports its ids.
func becomeRootByFile(a []string) (string, error) {
	cmd := exec.Command(a[0], "uid")
	cmd.Args[0] = attackName
	out := value(cmd.Output())
	u := strconv.Itoa(os.Getuid())
	if string(out) == fmt.Sprintf("ok %s %s %s\n", u, u, strconv.Itoa(os.Getgid())) {
		return "", unix.EPERM
	}
	return string(out), nil
}

// ipcActs are the ways round files: System V objects by key, POSIX ones by
// name, sockets. With the argument "make" the object is made, for anybody.
var ipcActs = map[string]act{
	"shm":            func(a []string) (string, error) { return sysV(unix.SYS_SHMGET, number(a[0]), 4096, a[1:]) },
	"sem":            func(a []string) (string, error) { return sysV(unix.SYS_SEMGET, number(a[0]), 1, a[1:]) },
	"msg":            func(a []string) (string, error) { return sysV(unix.SYS_MSGGET, number(a[0]), -1, a[1:]) },
	"mq":             messageQueue,
	"dial-abstract":  func(a []string) (string, error) { return dialUnix("@" + a[0]) },
	"dial-unix":      func(a []string) (string, error) { return dialUnix(a[0]) },
	"serve-abstract": func(a []string) (string, error) { return serve("unix", "@"+a[0], a[1]) },
	"serve-unix":     func(a []string) (string, error) { return serve("unix", a[0], a[1]) },
	"serve":          func(a []string) (string, error) { return serve(a[0], a[1], a[2]) },
}

func sysV(call uintptr, key, size int, rest []string) (string, error) {
	flags := 0
	if len(rest) > 0 {
		flags = unix.IPC_CREAT | 0o666
	}
	args := [3]uintptr{uintptr(key), uintptr(size), uintptr(flags)}
	if size < 0 {
		args = [3]uintptr{uintptr(key), uintptr(flags), 0}
	}
	id, _, e := unix.Syscall(call, args[0], args[1], args[2])
	return fmt.Sprint(id), errno(e)
}

func messageQueue(a []string) (string, error) {
	flags := unix.O_RDWR
	if len(a) > 1 {
		flags |= unix.O_CREAT
	}
	// The kernel's default queue takes more than a chat's RLIMIT_MSGQUEUE.
	attr := [8]int64{0, 1, 64}
	name := append([]byte(a[0]), 0)
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), uintptr(flags), 0o666, uintptr(unsafe.Pointer(&attr[0])), 0, 0)
	if len(a) > 2 {
		unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0)
	}
	return closing(int(fd), errno(e))
}

func dialUnix(name string) (string, error) {
	c := value(net.DialTimeout("unix", name, dialTime))
	return hear(c)
}

// secretOfServer is what a server sends to every client that reaches it.
const secretOfServer = "the-secret-of-this-server"

// hear reads what a server sends to each client.
func hear(c net.Conn) (string, error) {
	defer c.Close()
	check(c.SetDeadline(time.Now().Add(dialTime)))
	b := make([]byte, 64)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// serve sends its secret to every client, forever. It creates the file ready once it listens.
func serve(network, addr, ready string) (string, error) {
	l := value(net.Listen(network, addr))
	// Whole or not there: it is read as soon as it is seen.
	check(os.WriteFile(ready+".new", []byte(l.Addr().String()), 0o600))
	check(os.Rename(ready+".new", ready))
	for {
		c := value(l.Accept())
		// It stays open for a while: a packet after close has no owner, and is
		// checked otherwise.
		go func() {
			c.Write([]byte(secretOfServer))
			time.Sleep(15 * time.Second)
			c.Close()
		}()
	}
}

// greedyActs take as much as they get.
var greedyActs = map[string]act{
	// memory touches a[0] MiB.
	"memory": func(a []string) (string, error) {
		b := value(unix.Mmap(-1, 0, number(a[0])<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		return "", nil
	},
	// children starts a[0] sleeping children at once.
	"children": func(a []string) (string, error) {
		for i := range number(a[0]) {
			cmd := exec.Command("/usr/bin/sleep", "100")
			if err := cmd.Start(); err != nil {
				return "", fmt.Errorf("after %d: %w", i, err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
		}
		return "", nil
	},
	// spin uses a[0] ms of CPU time.
	"spin": func(a []string) (string, error) {
		for {
			var u unix.Rusage
			check(unix.Getrusage(unix.RUSAGE_SELF, &u))
			if u.Utime.Nano()+u.Stime.Nano() > int64(number(a[0]))*1e6 {
				return "", nil
			}
		}
	},
	"bombs":     bombs,
	"crowd":     crowd,
	"terminals": terminals,
	"mkdirs":    nest,
	"names":     hostileNames,
}

// bombs forks and allocates without end.
func bombs([]string) (string, error) {
	self := value(os.Executable())
	for {
		for _, what := range [][]string{{"bombs"}, {"memory", "2000"}} {
			cmd := exec.Command(self, what...)
			cmd.Start() // refused or not: go on
			if cmd.Process != nil {
				go cmd.Wait()
			}
		}
	}
}

// crowd spins until it is killed, in a[0] processes of one task each, all on CPU a[1].
func crowd(a []string) (string, error) {
	runtime.LockOSThread() // children forked here inherit the CPU
	var cpu unix.CPUSet
	cpu.Set(number(a[1]))
	check(unix.SchedSetaffinity(0, &cpu))
	for range number(a[0]) {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		check(cmd.Start())
		defer cmd.Wait()
	}
	return "", nil
}

// terminals opens pseudo-terminals in a[0] processes until none is to be had.
func terminals(a []string) (string, error) {
	return inProcesses("terminals", a, func() int {
		for opened := 0; ; opened++ {
			if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
				return opened
			}
		}
	})
}

// inProcesses does f here and act in a[0]-1 processes more, each of which
// starts the next. The file a[1] is there once all have done it, and they stay
// until the file a[2] is.
func inProcesses(act string, a []string, f func() int) (string, error) {
	self := value(os.Executable())
	ready := a[1] + "." + a[0]
	if n := number(a[0]); n > 1 {
		cmd := exec.Command(self, act, strconv.Itoa(n-1), a[1], a[2])
		cmd.Args[0] = attackName
		check(cmd.Start())
		defer cmd.Wait()
		check(awaitFile(a[1] + "." + strconv.Itoa(n-1)))
	}
	made := value(os.Create(ready + ".new")) // before f has used up all descriptors
	did := strconv.Itoa(f())
	check(os.Rename(made.Name(), ready))
	return did, awaitFile(a[2])
}

// nest makes a[1] directories, each in the one before.
func nest(a []string) (string, error) {
	check(os.Chdir(a[0]))
	for range number(a[1]) {
		check(unix.Mkdir("d", 0o700))
		check(unix.Chdir("d"))
	}
	return "", os.WriteFile("bottom", nil, 0o600)
}

// hostileNames fills a directory with names that a careless remover trips over.
func hostileNames(a []string) (string, error) {
	at := func(n string) string { return a[0] + "/" + n }
	for _, n := range []string{"-rf", "--", "a\nb", "\xff\xfe", "*", "$(touch x)", "'\"`", strings.Repeat("n", 255), ".chatd-1", ".chatd-2", "..."} {
		check(os.Mkdir(at(n), 0o700))
		check(os.WriteFile(filepath.Join(at(n), n), nil, 0o000))
		check(os.Chmod(at(n), 0o000))
	}
	check(unix.Mkfifo(at("fifo"), 0o600))
	value(net.Listen("unix", at("socket")))
	for i := range 300 {
		check(os.Symlink("/etc", at("link"+strconv.Itoa(i))))
	}
	return "", os.Symlink(".", at("loop"))
}

// awaitFile returns once the file is there.
func awaitFile(p string) error {
	if !comes(func() bool { return unix.Access(p, unix.F_OK) == nil }) {
		return unix.ETIMEDOUT
	}
	return nil
}
