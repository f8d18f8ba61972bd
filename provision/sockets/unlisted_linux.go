package sockets

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// unlistedMax is the most that a socket which no list shows can hold: the sizes of both
// of its buffers, which a chat cannot change.
func unlistedMax() (uint64, error) {
	var sum uint64
	for _, name := range []string{"rmem_default", "wmem_default"} {
		text, err := os.ReadFile("/proc/sys/net/core/" + name)
		if err != nil {
			return 0, fmt.Errorf("cannot read the size of a socket's buffers: %w", err)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("cannot read the size of a socket's buffers in %s: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}

const (
	// maxInspected is how many sockets are inspected in one look at a session, and maxDescriptors
	// how many descriptors of its processes are read for that.
	maxInspected, maxDescriptors = 2048, 4 * maxInspected
)

// unlisted is what processes have open and no list shows.
type unlisted struct {
	// usage is of the inspected sockets, rest how many more there are.
	usage
	rest int
}

// unlistedOf inspects the sockets that the processes have open and that listed does not name. It
// reads no more descriptors than descriptors. A process that ends meanwhile has none.
//
// A socket that a chat closes meanwhile would wait for its peer when it is closed here (socket(7),
// SO_LINGER). So a thread with descriptors of its own gets them (unshare(2)), and ends without
// closing any: the end of a thread does not linger (inet_release in net/ipv4/af_inet.c). The
// copies of this process's descriptors stay: Go's scheduler writes to one of them from any thread.
func unlistedOf(pids []int, listed map[uint32]bool, descriptors int) (u unlisted) {
	_ = sys.OnThread(func() error {
		err := unix.Unshare(unix.CLONE_FILES)
		seen := map[uint32]bool{}
		for _, pid := range pids {
			names, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			p := -1
			if err == nil {
				p, _ = unix.PidfdOpen(pid, 0)
			}
			for _, n := range names {
				if descriptors--; descriptors < 0 {
					return nil
				}
				inode, ok := socketInode(fmt.Sprintf("/proc/%d/fd/%s", pid, n.Name()))
				if !ok || listed[inode] || seen[inode] {
					continue
				}
				seen[inode] = true
				m, ok := uint64(0), false
				if u.Sockets < maxInspected {
					m, ok = inspect(p, n.Name(), inode)
				}
				if ok {
					u.add(entry{memory: m})
				} else {
					u.rest++
				}
			}
		}
		return nil
	})
	return u
}

// inspect returns what a socket of a process holds. It leaves the socket open.
func inspect(pidfd int, number string, inode uint32) (uint64, bool) {
	n, err := strconv.Atoi(number)
	if err != nil || pidfd < 0 {
		return 0, false
	}
	fd, err := unix.PidfdGetfd(pidfd, n, 0)
	if err != nil {
		return 0, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint32(st.Ino) != inode {
		return 0, false // it is another one by now
	}
	var words [memDrops + 1]uint32 // of sock_diag(7)'s SK_MEMINFO
	size := uint32(unsafe.Sizeof(words))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&words)), uintptr(unsafe.Pointer(&size)), 0)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words)), unsafe.Sizeof(words))
	return memory(b), e == 0
}

// socketInode reads a link of /proc/PID/fd: "socket:[123]".
func socketInode(link string) (uint32, bool) {
	to, err := os.Readlink(link)
	if err != nil {
		return 0, false
	}
	number, ok := strings.CutPrefix(to, "socket:[")
	n, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32)
	return uint32(n), ok && err == nil
}
