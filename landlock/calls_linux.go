package landlock

import (
	"fmt"
	"runtime"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// runtimeCalls are the system calls of the Go runtime: memory, threads, time and waiting.
var runtimeCalls = []string{
	"mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore", "membarrier",
	"clone", "clone3", "set_robust_list", "rseq", "futex", "exit", "exit_group", "gettid",
	"getpid", "tgkill", "sched_yield", "sched_getaffinity",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday",
	"timer_create", "timer_settime", "timer_delete", "setitimer", "getrandom", "prctl",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "pipe2",
	"fcntl", "close", "read", "write", "fstat",
}

// Restrict confines a process of chatd's own, every thread and for good, to r and to the system
// calls of the Go runtime and those named. Others of its user may not trace it, and it leaves no
// core. After an error the process must exit. missing are the walls that this kernel does not have.
func Restrict(r Rules, calls ...string) (missing []string, err error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot keep others of this user out: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return nil, fmt.Errorf("cannot go without a core: %w", err)
	}
	if ABI() == 0 {
		missing = append(missing, "landlock")
	} else if _, err := Enforce(r, 1, true); err != nil {
		return nil, err
	}
	return missing, AllowCalls(append(calls, runtimeCalls...))
}

// AllowCalls refuses every thread of the process all system calls but the named ones, for good
// (seccomp(2)): by EPERM, as of another architecture's. It sets no_new_privs. Names that this
// architecture lacks are left out.
func AllowCalls(names []string) error {
	info, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("cannot make a system call filter: %w", err)
	}
	var known []string
	for _, n := range names {
		if _, ok := info.SyscallNames[n]; ok {
			known = append(known, n)
		}
	}
	runtime.LockOSThread() // no_new_privs, which the filter needs, is the thread's until it is loaded
	defer runtime.UnlockOSThread()
	err = seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno, // the library adds EPERM
			Syscalls:      []seccomp.SyscallGroup{{Action: seccomp.ActionAllow, Names: known}},
		},
	})
	if err != nil {
		return fmt.Errorf("cannot load a system call filter: %w", err)
	}
	return nil
}
