package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// joinTries bounds join. Each pass moves all it sees, and who is moved has children inside, so only
// a storm of forks in the first program needs many.
const joinTries = 100

// join moves the processes that list names into the chat's cgroup of a v1 controller, until a list
// names no process outside but those that were ending before it was read: any other may have
// forked between the list and its move, and its child is outside too.
func (g legacy) join(controller string, id chat.ID, list func() ([]int, error)) error {
	ending := map[int]uint64{} // start times, by pid
	for try := range joinTries {
		moved, err := joinOnce(g.dir(controller, id, ""), list, ending)
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

// joinOnce moves the processes of one list, and notes those that end: they stay listed until they
// are dead. It returns how many were outside, without those noted before.
func joinOnce(dir string, list func() ([]int, error), ending map[int]uint64) (moved int, err error) {
	pids, err := list()
	if err != nil {
		return 0, err
	}
	inside, err := cgroupfs.Processes(dir)
	if err != nil {
		return 0, err
	}
	for _, p := range pids {
		if slices.Contains(inside, p) {
			continue
		}
		err := cgroupfs.Write(dir, "cgroup.procs", strconv.Itoa(p))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return moved, err
		}
		start, noted := ending[p]
		st, err := sys.ReadStat(p)
		gone := err != nil
		if noted && (gone || st.Start == start) {
			continue
		}
		moved++
		if gone || st.Flags&sys.Exiting != 0 {
			ending[p] = st.Start
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
