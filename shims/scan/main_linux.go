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
	"github.com/chatd/chatd/landlock"
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

// confine gives up what the walk does not need, for every thread and for good. missing are the walls
// that this kernel does not have.
func confine() (missing []string, err error) {
	if err := lowestPriority(); err != nil {
		return nil, err
	}
	if err := onlySearches(); err != nil {
		return nil, err
	}
	// No open but openat2(2), which Landlock checks, no socket, no exec.
	return landlock.Restrict(landlock.Rules{List: []string{"/"}}, "openat2", "getdents64", "statx")
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
