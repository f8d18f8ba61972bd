//go:build failpoints

package sys

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The files by which test/roottest gives orders and learns which points there are.
const (
	failpointOrder = "failpoint"     // "POINT PID…"; 0 is the process that meets the point
	failpointMet   = "failpoint.met" // where it exists each point adds its name
)

// failpointDir is where those files are: what CHATD_FAILPOINT names, or the argument --dir of the
// enforcer, whose environment is empty. It is a descriptor, for a thread may be in a session.
var failpointDir = func() int {
	dir := os.Getenv("CHATD_FAILPOINT")
	if i := slices.Index(os.Args, "--dir"); dir == "" && i > 0 && i+1 < len(os.Args) {
		dir = os.Args[i+1]
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}()

// Failpoint kills this process, as kill -9 would, when CHATD_FAILPOINT names the point. Where that
// is a directory, an order in it names the point and the processes to kill. Each order is obeyed
// once, and the point waits until they have ended. It exists for test/roottest: a crash at any
// step, of chatd-root or of a process beside it, leaves a chat that is whole or gone.
func Failpoint(name string) {
	if os.Getenv("CHATD_FAILPOINT") == name {
		failpointKill(0)
	}
	const add = unix.O_WRONLY | unix.O_APPEND | unix.O_CLOEXEC
	if fd, err := unix.Openat(failpointDir, failpointMet, add, 0); err == nil {
		_, _ = unix.Write(fd, []byte(name+"\n"))
		_ = unix.Close(fd)
	}
	fd, err := unix.Openat(failpointDir, failpointOrder, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	text := make([]byte, 512)
	n, _ := unix.Read(fd, text)
	_ = unix.Close(fd)
	order := strings.Fields(string(text[:max(n, 0)]))
	mine := len(order) > 0 && order[0] == name
	if !mine || unix.Unlinkat(failpointDir, failpointOrder, 0) != nil {
		return
	}
	self := false
	for _, victim := range order[1:] {
		switch pid, err := strconv.Atoi(victim); {
		case err != nil:
		case pid == 0 || pid == os.Getpid():
			self = true // last: what is killed kills nothing more
		default:
			failpointKill(pid)
		}
	}
	if self {
		failpointKill(0)
	}
}

// failpointKill kills a process and waits for its end; 0 is this one.
func failpointKill(pid int) {
	if pid == 0 {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	for ended := 0; ended == 0; {
		ended, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		ended = max(ended, 0) // EINTR
	}
}
