package keeper

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// mostEvents bounds how many events about names are held at once, and mostFound of how many
// directories it is known where they are.
const (
	mostEvents = 300_000
	mostFound  = 50_000
)

// readNames takes in what the kernel tells of names, all that is there: what is opened next
// is judged by it. The caller holds the lock.
func (w *watch) readNames() error {
	left, err := w.queued()
	for err == nil && left > 0 {
		var some []fanEvent
		n := min(left, w.most)
		some, err = w.takeNames(n)
		w.takeIn(some)
		if left -= len(some); len(some) < n {
			break // there are no more, whatever was counted
		}
		if left > 0 {
			w.endNoisy(some)
		}
	}
	return err
}

// takeNames reads n events at least, if there are so many.
func (w *watch) takeNames(n int) (all []fanEvent, err error) {
	buf := make([]byte, 64<<10)
	for len(all) < n {
		read, err := unix.Read(w.namesFD, buf)
		if err == unix.EAGAIN || err == nil && read == 0 {
			break
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return all, fmt.Errorf("cannot read events about names: %w", err)
		}
		events, err := parseEvents(buf[:read])
		if err != nil {
			return all, err
		}
		all = append(all, events...)
	}
	return all, nil
}

// takeIn takes events in. Moves of directories come first: an event names a directory that
// may have been moved since.
func (w *watch) takeIn(all []fanEvent) {
	moved := slices.ContainsFunc(all, isMove)
	if moved || len(w.found) > mostFound {
		clear(w.found)
	}
	for _, e := range all {
		if isMove(e) {
			w.moved(e)
		}
	}
	for _, e := range all {
		w.named(e)
		if !moved {
			w.follow(e)
		}
	}
}

// endNoisy ends the session that made more of these names than any other did, where no
// other sees them, when there are more than can be held. So they do not grow without end,
// and nobody waits for them for ever.
func (w *watch) endNoisy(all []fanEvent) {
	made := map[*watched]int{}
	var most *watched
	for _, e := range all {
		at := w.places(e.dir)
		if len(at) == 0 || slices.ContainsFunc(at, func(p placed) bool { return p.s != at[0].s }) {
			continue
		}
		if made[at[0].s]++; most == nil || made[at[0].s] > made[most] {
			most = at[0].s
		}
	}
	if most != nil {
		w.end(most.k, fmt.Errorf("%d names were made or changed before they could be looked at", made[most]))
	}
}

// isMove reports that a directory was moved: where it, and what lies in it, was found is old.
func isMove(e fanEvent) bool { return e.mask&unix.FAN_RENAME != 0 && e.mask&unix.FAN_ONDIR != 0 }

// queued is how many events there are now, at most: who reads does not wait for those that a
// chat adds meanwhile. Linux 6.1 was seen to count more than there are.
func (w *watch) queued() (int, error) {
	bytes, err := unix.IoctlGetInt(w.namesFD, unix.TIOCINQ) // FIONREAD, see fanotify(7)
	if err != nil {
		return 0, fmt.Errorf("cannot count events about names: %w", err)
	}
	return bytes / fanHeader, nil
}
