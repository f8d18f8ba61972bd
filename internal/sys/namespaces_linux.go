package sys

import (
	"errors"
	"fmt"
	"os"
)

// namespaceTypes are the namespaces that a process joins to act inside another one's, in the
// order of nsenter(1)'s options.
var namespaceTypes = []string{"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"}

// Namespace is an open namespace, for setns(2), and its type: a name in /proc/PID/ns
// (namespaces(7)).
type Namespace struct {
	Type string
	File *os.File
}

// Namespaces opens the namespaces of the process that differ from the daemon's. It opens
// them by pid and then checks the pidfd: while the process lives, no other has its pid.
func (p *ProcessHandle) Namespaces() (all []Namespace, err error) {
	for _, t := range namespaceTypes {
		same, err := p.SharesNamespace(t)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		if same {
			continue
		}
		f, err := os.Open(p.namespace(t))
		if err != nil {
			return nil, errors.Join(
				fmt.Errorf("cannot open a namespace of process %d: %w", p.PID, err), closeAll(all))
		}
		all = append(all, Namespace{t, f})
	}
	if !p.Alive() {
		return nil, errors.Join(
			fmt.Errorf("cannot join process %d: it has ended", p.PID), closeAll(all))
	}
	return all, nil
}

// SharesNamespace reports whether the process is in the daemon's own namespace of a type. Like
// [ProcessHandle.Namespaces], it goes by pid: the answer holds if the process is alive afterwards.
func (p *ProcessHandle) SharesNamespace(kind string) (bool, error) {
	theirs, err := os.Readlink(p.namespace(kind))
	if err != nil {
		return false, fmt.Errorf("cannot read a namespace: %w", err)
	}
	own, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false, fmt.Errorf("cannot read a namespace: %w", err)
	}
	return theirs == own, nil
}

func (p *ProcessHandle) namespace(kind string) string {
	return fmt.Sprintf("/proc/%d/ns/%s", p.PID, kind)
}

func closeAll(namespaces []Namespace) (err error) {
	for _, n := range namespaces {
		err = errors.Join(err, n.File.Close())
	}
	return err
}
