package front

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
)

// passed are the system calls of the front: memory, threads and time of the Go runtime, and
// reading and writing of what is open. Names that an architecture lacks are left out.
var passed = []string{
	"mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore", "membarrier",
	"clone", "clone3", "set_robust_list", "rseq", "futex", "exit", "exit_group", "gettid", "getpid", "tgkill", "sched_yield", "sched_getaffinity",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "timer_create", "timer_settime", "timer_delete", "setitimer",
	"getrandom", "prctl", "uname", "getrlimit", "prlimit64",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "pipe2", "fcntl", "ioctl",
	"read", "readv", "write", "writev", "pread64", "close", "fstat", "dup", "dup3",
	"accept4", "socketpair", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
	"recvmsg", "recvfrom", "sendmsg", "sendto",
}

// maxData bounds the front's own memory, in bytes; with two chats it has 25 MB. Where it is met
// the Go runtime ends the front, and chatd-root starts another.
const maxData = 2 << 30

// confine gives up the rights that the front does not need. After an error the process must exit.
// missing are the walls that this kernel does not have.
func confine() (missing []string, err error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot keep others of this user out: %w", err)
	}
	for limit, max := range map[int]uint64{unix.RLIMIT_DATA: maxData, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: max, Max: max}); err != nil {
			return nil, fmt.Errorf("cannot bound the memory of the front: %w", err)
		}
	}
	if landlock.ABI() == 0 {
		missing = append(missing, "landlock")
	} else if _, err := landlock.Enforce(landlock.Rules{}, 1, true); err != nil {
		return nil, err
	}
	return missing, landlock.AllowCalls(passed)
}
