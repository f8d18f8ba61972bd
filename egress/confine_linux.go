package egress

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
)

// Confine gives up the rights that carrying does not need, for every thread and for good. After an
// error the process must exit. missing are the walls that this kernel does not have.
func Confine() (missing []string, err error) {
	var files unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	if err == nil {
		files.Cur = files.Max
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot raise the limit of descriptors: %w", err)
	}
	// What it does with descriptors that chatd-root has made: no open, no socket, no exec.
	return landlock.Restrict(landlock.Rules{}, "uname", "getrlimit", "prlimit64", "splice", "dup", "dup3",
		"readv", "writev", "pread64", "pwrite64", "lseek", "ftruncate", "fsync", "fdatasync", "flock",
		"accept4", "connect", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
		"recvmsg", "recvfrom", "sendmsg", "sendto")
}
