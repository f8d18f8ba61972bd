package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

// joinTries bounds join. Each pass moves all it sees, and who is moved has children inside, so only
// a storm of forks in the first program needs many.
const joinTries = 100

// join moves the processes that list names into the chat's cgroup of a v1 controller, again until
// a pass finds nobody outside.
func (g *legacy) join(controller string, id chat.ID, list func() ([]int, error)) error {
	for try := range joinTries {
		moved, err := g.joinOnce(g.dir(controller, id, ""), list)
		if err != nil {
			return fmt.Errorf("cannot move a process into the v1 %s cgroup of chat %s: %w",
				controller, id, err)
		}
		if moved == 0 {
			return nil
		}
		if try > joinTries/10 {
			time.Sleep(time.Millisecond)
		}
	}
	return fmt.Errorf("cannot move all into the v1 %s cgroup of chat %s: they fork faster: %w",
		controller, id, chat.ErrBusy)
}

func (g *legacy) joinOnce(dir string, list func() ([]int, error)) (moved int, err error) {
	pids, err := list()
	if err != nil {
		return 0, err
	}
	found, err := cgroupfs.Processes(dir)
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
		err := cgroupfs.Write(dir, "cgroup.procs", strconv.Itoa(p))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return moved, err
		}
		if !exiting(p) {
			moved++
		}
	}
	return moved, nil
}

// joinFurther makes the chat's cgroup of a further controller, and moves there whoever is alive:
// a chat that is awake may get its first bound.
func (f *FS) joinFurther(controller string, id chat.ID) error {
	if err := cgroupfs.Make(f.legacy.dir(controller, id, "")); err != nil {
		return err
	}
	return f.legacy.join(controller, id, func() ([]int, error) { return cgroupfs.Members(f.dir(id)) })
}

// exiting tells that a process has begun to end: it is listed until it is dead.
func exiting(pid int) bool {
	st, err := sys.ReadStat(pid)
	return err != nil || st.Flags&sys.Exiting != 0
}
