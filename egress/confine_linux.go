package egress

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
)

// passed are the system calls of chatd-egress: memory, threads and time of the Go runtime, and
// what it does with descriptors that chatd-root has made: no open, no socket, no exec. Names that
// an architecture lacks are left out.
var passed = []string{
	"mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore", "membarrier",
	"clone", "clone3", "set_robust_list", "rseq", "futex", "exit", "exit_group", "gettid",
	"getpid", "tgkill", "sched_yield", "sched_getaffinity",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday",
	"timer_create", "timer_settime", "timer_delete", "setitimer",
	"getrandom", "prctl", "uname", "getrlimit", "prlimit64",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2",
	"pipe2", "splice", "fcntl", "close", "dup", "dup3",
	"read", "readv", "write", "writev", "pread64", "pwrite64", "lseek", "fstat", "ftruncate",
	"fsync", "fdatasync", "flock",
	"accept4", "connect", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
	"recvmsg", "recvfrom", "sendmsg", "sendto",
}

// Confine gives up the rights that carrying does not need, for every thread and for good. After an
// error the process must exit. missing are the walls that this kernel does not have.
func Confine() (missing []string, err error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot keep others of this user out: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return nil, fmt.Errorf("cannot go without a core: %w", err)
	}
	var files unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	if err == nil {
		files.Cur = files.Max
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot raise the limit of descriptors: %w", err)
	}
	if landlock.ABI() == 0 {
		missing = append(missing, "landlock")
	} else if _, err := landlock.Enforce(landlock.Rules{}, 1, true); err != nil {
		return nil, err
	}
	return missing, landlock.AllowCalls(passed)
}
