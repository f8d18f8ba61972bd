package front

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
)

// maxData bounds the front's own memory, in bytes; with two chats it has 25 MB. Where it is met
// the Go runtime ends the front, and chatd-root starts another.
const maxData = 2 << 30

// confine gives up the rights that the front does not need. After an error the process must exit.
// missing are the walls that this kernel does not have.
func confine() (missing []string, err error) {
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: maxData, Max: maxData}); err != nil {
		return nil, fmt.Errorf("cannot bound the memory of the front: %w", err)
	}
	// Reading and writing of what is open.
	return landlock.Restrict(landlock.Rules{}, "uname", "getrlimit", "prlimit64", "ioctl", "dup", "dup3",
		"readv", "writev", "pread64", "accept4", "socketpair", "shutdown", "getsockname", "getpeername",
		"getsockopt", "setsockopt", "recvmsg", "recvfrom", "sendmsg", "sendto")
}
