package cgroup

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// pinnedBytes are enough of a program for execve(2) to replace the process.
const pinnedBytes = 64 << 10

// pin keeps the start of a program in memory until unpin. A child reads it as the chat, behind all
// that the chat has asked of a disk. Go's fork delays every other fork of chatd until the exec. A
// chat that has its disk bound used up for hours, and drops the program from the page cache
// (posix_fadvise(2)), would hold up all others. The kernel does not drop mapped pages.
//
// A chat without a bound on block I/O needs none of that.
func (f *FS) pin(id chat.ID, cmd *exec.Cmd) (unpin func(), err error) {
	f.mu.Lock()
	bounded := f.limits[id].BoundsIO()
	f.mu.Unlock()
	if !bounded {
		return func() {}, nil
	}
	program, err := os.Open(cmd.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot start a program: %w", err)
	}
	defer program.Close()
	content, err := unix.Mmap(int(program.Fd()), 0, pinnedBytes,
		unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("cannot map %s: %w", cmd.Path, err)
	}
	return func() { _ = unix.Munmap(content) }, nil // its own mapping
}
