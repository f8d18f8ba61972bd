package shims

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// leafTime bounds how long the unit's other processes may take to end.
const leafTime = 10 * time.Second

// moveToLeaf moves this process from the unit's cgroup, own, to its leaf "session". A cgroup with
// processes cannot enable controllers for its children, and systemd 252 has no DelegateSubgroup. It
// writes "0", so that it trusts no process number. It ends systemd's helper that holds the PAM
// session open, which has the chat's uid outside every inner wall.
func moveToLeaf(own string) error {
	if err := endCompany(own); err != nil {
		return err
	}
	leaf := filepath.Join(own, "session")
	if err := os.Mkdir(leaf, 0o700); err != nil {
		return fmt.Errorf("cannot make the session's cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("cannot move to the session's cgroup: %w", err)
	}
	return nil
}

// ownCgroup is the directory of this process's cgroup (cgroups(7)).
func ownCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("cannot find the own cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok && path != "" {
			return filepath.Join("/sys/fs/cgroup", path), nil
		}
	}
	return "", fmt.Errorf("cannot find the own cgroup in %s: %w", chat.Quote(string(text)),
		chat.ErrUnsupported)
}

// endCompany ends every other process of the unit, and returns when this one is alone. At
// SIGTERM systemd's PAM helper ends; it would close the PAM session only after the end of this
// process, too late to undo a mount.
func endCompany(own string) error {
	signal := unix.SIGTERM
	for end := time.Now().Add(leafTime); ; time.Sleep(time.Millisecond) {
		others, err := company(own)
		if err != nil || len(others) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v of the unit did not exit: %w", others, chat.ErrBusy)
		}
		if time.Until(end) < leafTime/2 {
			signal = unix.SIGKILL
		}
		for _, pid := range others {
			if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("cannot end process %d of the unit: %w", pid, err)
			}
			// It may be this process's child: systemd forks it from this process.
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

func company(own string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(own, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the unit's processes: %w", err)
	}
	var others []int
	for f := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(f)
		if err != nil || pid <= 1 {
			return nil, fmt.Errorf("cannot list the unit's processes: %s is none of this namespace: %w",
				chat.Quote(f), chat.ErrUnsupported)
		}
		if pid != os.Getpid() {
			others = append(others, pid)
		}
	}
	return others, nil
}
