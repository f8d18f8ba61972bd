package scan

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// Main is the mode "scan" of chatd-shim. It reads a [chat.StrayRequest] from standard input and
// writes lines to standard output. It returns the exit code.
func Main() int {
	runtime.LockOSThread() // priorities are those of a thread
	var req chat.StrayRequest
	if err := json.NewDecoder(os.Stdin).Decode(&req); err != nil {
		return 2
	}
	w := bufio.NewWriter(os.Stdout)
	out := json.NewEncoder(w)
	end, err := search(req, func(l chat.StrayLine) error { return out.Encode(l) })
	if err != nil {
		end.Error = err.Error()
	}
	if errors.Join(out.Encode(chat.StrayLine{End: &end}), w.Flush()) != nil {
		return 1
	}
	return 0
}

func search(req chat.StrayRequest, say func(chat.StrayLine) error) (end chat.StrayEnd, err error) {
	mounts, err := sys.ReadMounts("/proc/self/mountinfo")
	if err != nil {
		return end, err
	}
	for _, dir := range req.Under {
		if !slices.ContainsFunc(mounts, func(m sys.Mount) bool { return m.Path == dir }) {
			return end, fmt.Errorf("cannot look under %s: want a mount point", chat.Quote(dir))
		}
	}
	if _, err := confine(); err != nil {
		return end, err
	}
	return newWalk(req, say).all(mounts), nil
}

// lowestPriority gives this thread the idle classes of CPU and disk (sched(7), ioprio_set(2)).
func lowestPriority() error {
	const whoProcess, idleClass = 1, 3 << 13
	_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, 0, idleClass)
	if errno != 0 {
		return fmt.Errorf("cannot lower the priority of reading: %w", errno)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil {
		return fmt.Errorf("cannot lower the priority: %w", err)
	}
	return nil
}
