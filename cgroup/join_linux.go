package cgroup

import (
	"errors"
	"fmt"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

// joinTries bounds joinCPU: each pass moves all it sees, and who is moved has
// children inside, so only a storm of forks in the first program needs many.
const joinTries = 100

// joinCPU moves whoever is in the leaf into the chat's v1 cpu cgroup, again until
// a pass finds nobody outside.
func (g *legacy) joinCPU(id chat.ID, leaf string) error {
	cg, err := g.load(id, "", cgroup1.Cpu)
	if err != nil {
		return err
	}
	for try := range joinTries {
		moved, err := g.joinOnce(cg, id, leaf)
		if err != nil {
			return fmt.Errorf("cannot move a process into the v1 cpu cgroup of chat %s: %w", id, err)
		}
		if moved == 0 {
			return nil
		}
		if try > joinTries/10 {
			time.Sleep(time.Millisecond)
		}
	}
	return fmt.Errorf("cannot move all processes into the v1 cpu cgroup of chat %s: they fork faster: %w", id, chat.ErrBusy)
}

func (g *legacy) joinOnce(cg cgroup1.Cgroup, id chat.ID, leaf string) (moved int, err error) {
	pids, err := readPids(leaf)
	if err != nil {
		return 0, err
	}
	found, err := readPids(g.dir("cpu", id, ""))
	if err != nil {
		return 0, err
	}
	inside := map[int]bool{}
	for _, p := range found {
		inside[p] = true
	}
	for _, p := range pids {
		if inside[p] {
			continue
		}
		if err := cg.AddProc(uint64(p)); err != nil && !errors.Is(err, unix.ESRCH) {
			return moved, err
		}
		if !exiting(p) {
			moved++
		}
	}
	return moved, nil
}

// exiting tells that a process has begun to end: it is listed until it is dead.
func exiting(pid int) bool {
	st, err := sys.ReadStat(pid)
	return err != nil || st.Flags&sys.Exiting != 0
}
