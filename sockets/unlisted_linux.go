package sockets

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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

// unlistedOf counts the sockets that the processes have open and that listed does not
// name, up to most. A process that ends meanwhile has none.
func unlistedOf(pids []int, listed map[uint32]bool, max int) int {
	seen := map[uint32]bool{}
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		names, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, n := range names {
			inode, ok := socketInode(dir + "/" + n.Name())
			if ok && !listed[inode] {
				seen[inode] = true
			}
		}
		if len(seen) >= max {
			break
		}
	}
	return len(seen)
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
