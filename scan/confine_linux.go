package scan

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
)

// passed are the system calls of a walk and of the Go runtime: no open but openat2(2), which
// Landlock checks, no socket, no exec. Names that an architecture lacks are left out.
var passed = []string{
	"mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore", "membarrier",
	"clone", "clone3", "set_robust_list", "rseq", "futex", "exit", "exit_group", "gettid",
	"getpid", "tgkill", "sched_yield", "sched_getaffinity",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday",
	"timer_create", "timer_settime", "timer_delete", "setitimer", "getrandom", "prctl",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "pipe2",
	"openat2", "getdents64", "fstat", "statx", "lseek", "fcntl", "close", "read", "write",
}

// confine gives up what the walk does not need, for every thread and for good. missing is a wall
// that this kernel does not have.
func confine() (missing string, err error) {
	if err := lowestPriority(); err != nil {
		return "", err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return "", fmt.Errorf("cannot keep others of this user out: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return "", fmt.Errorf("cannot go without a core: %w", err)
	}
	if err := onlySearches(); err != nil {
		return "", err
	}
	if landlock.ABI() == 0 {
		missing = "landlock"
	} else if _, err := landlock.Enforce(landlock.Rules{List: []string{"/"}}, 1, true); err != nil {
		return "", err
	}
	return missing, landlock.AllowCalls(passed)
}

// onlySearches checks that the process has CAP_DAC_READ_SEARCH and no other capability.
func onlySearches() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("cannot read the capabilities: %w", err)
	}
	want := uint32(1) << unix.CAP_DAC_READ_SEARCH
	if data[0].Effective != want || data[0].Permitted != want || data[1].Permitted != 0 {
		return fmt.Errorf("cannot scan with the capabilities %#x: want CAP_DAC_READ_SEARCH alone",
			uint64(data[1].Permitted)<<32|uint64(data[0].Permitted))
	}
	if unix.Getuid() == 0 {
		return fmt.Errorf("cannot scan as root")
	}
	return nil
}
