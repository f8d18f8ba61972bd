package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BecomeSubreaper makes orphans of this process's children its own children
// (PR_SET_CHILD_SUBREAPER, prctl(2)). There are two kinds: bubblewrap's pid 1, whose parent ends
// when the session is up, and the command of a run whose nsenter was killed with it. A zombie
// of the second kind keeps a whole pid namespace from ending. Not every pid 1 reaps the orphans
// that it inherits: those of containers often do not.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot adopt the orphans of sessions: %w", err)
	}
	return nil
}

// CollectOrphans reaps ended children whose uid is uid, and those in an inner pid namespace. A
// run that is killed between nsenter's fork and its setuid leaves a zombie of root, which would
// keep the namespace from ending. It takes nothing from os/exec, whose own children are root's
// in this namespace (nsenter), or are waited for without regard to their exit status (bwrap).
//
// Mostly no child has ended, which one question to the kernel finds out: their number grows with
// that of the awake chats.
func CollectOrphans(uid uint32) error {
	if !anyZombie() {
		return nil
	}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		return errors.Join(errors.New("cannot list children: the kernel lacks CONFIG_PROC_CHILDREN"), err)
	}
	var errs []error
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("cannot read %s: %w", list, err)
			}
			if u, err := UIDOf(pid); err != nil || !isZombie(pid) || u != uid && !isInside(pid) {
				continue
			}
			if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.ECHILD) {
				errs = append(errs, fmt.Errorf("cannot collect process %d: %w", pid, err))
			}
		}
	}
	return errors.Join(errs...)
}

// anyZombie reports whether a child has ended and was not waited for; it is true if the kernel does
// not tell.
func anyZombie() bool {
	var info unix.Siginfo
	const look = unix.WEXITED | unix.WNOHANG | unix.WNOWAIT | unix.WALL
	if err := unix.Waitid(unix.P_ALL, 0, &info, look, nil); err != nil {
		return !errors.Is(err, unix.ECHILD)
	}
	return info.Signo != 0
}

// isInside reports whether the process is in a pid namespace below this one: then it has more
// pids than this process (NSpid, proc_pid_status(5)).
func isInside(pid int) bool {
	own, other := pidLevels("self"), pidLevels(strconv.Itoa(pid))
	return own > 0 && other > own
}

func pidLevels(pid string) int {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	return len(statusFields(string(b), "NSpid"))
}
