package cgroupfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Populated tells whether a process is in dir or below.
func Populated(dir string) (bool, error) {
	v, err := ReadFlat(dir, "cgroup.events", "populated")
	return v != 0, err
}

// Members lists the pids in dir and below; a cgroup that goes away meanwhile has none.
func Members(dir string) ([]int, error) {
	pids, err := Processes(dir)
	if err != nil {
		return nil, err
	}
	below, err := Below(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range below {
		more, err := Members(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, chat.ErrNotFound) {
			return nil, err
		}
		pids = append(pids, more...)
	}
	return pids, nil
}

// Processes reads cgroup.procs of dir itself.
func Processes(dir string) ([]int, error) {
	b, err := Read(dir, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for s := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("cannot list the processes of %s: %w", dir, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
