package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ProcessInfo is what the kernel counts of a process, and its name.
type ProcessInfo struct {
	Stat
	UID   uint32 // the real uid
	Inner int    // its pid in its own namespace
}

// ReadProcess reads stat and status of a process by one descriptor of its directory, so that both
// are of the same process, even if its pid is reused. One that has ended is [os.ErrNotExist]. As
// for [PidsOf], no read waits for the process's memory.
func ReadProcess(pid int) (p ProcessInfo, err error) {
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return p, fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	stat, err := readProcFile(dir, "stat")
	if err != nil {
		return p, err
	}
	status, err := readProcFile(dir, "status")
	if err != nil {
		return p, err
	}
	return parseProcess(stat, status)
}

func readProcFile(dir *os.Root, name string) (string, error) {
	b, err := dir.ReadFile(name)
	if errors.Is(err, unix.ESRCH) {
		err = errors.Join(os.ErrNotExist, err)
	}
	if err != nil {
		return "", fmt.Errorf("cannot look at a process: %w", err)
	}
	return string(b), nil
}

func parseProcess(stat, status string) (p ProcessInfo, err error) {
	if p.Stat, err = parseStat(stat); err != nil {
		return p, err
	}
	if p.UID, err = statusUID(status); err != nil {
		return p, err
	}
	pids := statusFields(status, "NSpid")
	if len(pids) == 0 {
		return p, fmt.Errorf("cannot read process status %.80q: it has no pid", status)
	}
	p.Inner, err = strconv.Atoi(pids[len(pids)-1])
	return p, err
}
