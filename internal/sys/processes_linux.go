package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// PidsOf lists the living processes and the zombies of the uid. It reads only stat and status of
// each process. A read of cmdline, environ or maps waits for the process's memory, which a chat
// can keep busy for any time. Where the uid has no process, the kernel says so in one call.
func PidsOf(uid uint32) (living, dead []int, err error) {
	// It counts zombies, and every process of that real uid that /proc lists (getpriority(2)).
	if _, err := unix.Getpriority(unix.PRIO_USER, int(uid)); errors.Is(err, unix.ESRCH) {
		return nil, nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		switch u, err := UIDOf(pid); {
		case err != nil || u != uid:
		case isZombie(pid):
			dead = append(dead, pid)
		default:
			living = append(living, pid)
		}
	}
	return living, dead, nil
}

// UIDOf reads the real uid. The owner of /proc/PID is the effective uid, or root for a
// process that is not dumpable.
func UIDOf(pid int) (uint32, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return statusUID(string(b))
}

func isZombie(pid int) bool {
	s, err := ReadStat(pid)
	return err == nil && s.State == 'Z'
}
