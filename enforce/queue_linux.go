package enforce

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxEvents bounds how many names of one session wait to be looked at, and maxFound of how
// many directories it is known where they are.
const (
	maxEvents = 300_000
	maxFound  = 50_000
)

// gatherTime is how long name events gather before they are read, unless an open waits. So a chat
// that renames in a loop costs one read for many events.
const gatherTime = time.Millisecond

// listen reads name events as they come, also while no open waits.
func (w *watch) listen() error {
	for {
		if err := w.awaitNames(); err != nil {
			return err
		}
		w.mu.Lock()
		err := w.readNames()
		w.mu.Unlock()
		if err != nil {
			return err
		}
		time.Sleep(gatherTime)
	}
}

// awaitNames returns when there is something to read. It holds a thread: the runtime's poller
// would wake for each event, also while names gather.
func (w *watch) awaitNames() error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(w.namesFD), Events: unix.POLLIN}}, -1)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return fmt.Errorf("cannot wait for events about names: %w", err)
		}
	}
}

// readNames reads all queued name events and sorts them by the sessions that see them. It leaves
// the rest to [watch.process], so that no session pays for another's events. It does not wait for those
// that a chat adds meanwhile. The caller holds the lock.
func (w *watch) readNames() error {
	bytes, err := unix.IoctlGetInt(w.namesFD, unix.TIOCINQ) // FIONREAD, see fanotify(7)
	if err != nil {
		return fmt.Errorf("cannot count events about names: %w", err)
	}
	for left := bytes / unix.FAN_EVENT_METADATA_LEN; left > 0; {
		n, err := unix.Read(w.namesFD, w.buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN || err == nil && n == 0:
			return nil // Linux 6.1 was seen to count more than there are
		case err != nil:
			return fmt.Errorf("cannot read events about names: %w", err)
		}
		some, err := parseEvents(w.buf[:n])
		for _, e := range some {
			w.route(e)
		}
		if err != nil {
			return err
		}
		left -= len(some)
	}
	return nil
}

// route hands one event to each session that sees one of its names.
func (w *watch) route(e fanEvent) {
	if e.mask&unix.FAN_Q_OVERFLOW != 0 {
		for _, s := range w.sessions {
			w.end(s.session, errors.New("the kernel lost events about its files"))
		}
		return
	}
	now, old := w.ownersOf(e.dir.dir), w.ownersOf(e.old.dir)
	const dirMove = unix.FAN_RENAME | unix.FAN_ONDIR // paths that are cached become old
	if e.mask&dirMove == dirMove {
		for _, s := range now {
			if slices.Contains(old, s) {
				w.enqueue(s, func(b *backlog) { b.moves.add([2]dirName{e.old, e.dir}) })
			}
		}
		if !slices.Equal(now, old) {
			clear(w.owners) // other sessions than before see the directory's content
		}
		for _, s := range slices.Concat(now, old) {
			s.dirs.age++
		}
	}
	for _, s := range now {
		w.enqueue(s, func(b *backlog) { b.events.add(nameEvent{e.dir, e.child}) })
	}
	for _, s := range old {
		w.enqueue(s, func(b *backlog) { b.events.add(nameEvent{e.old, e.child}) })
	}
	w.follow(e, now)
}

// follow records where a new directory is, from its name, or that no session sees it. Looking for
// each new directory in every session would let whoever makes many hold up every open. The root of
// a tree is looked for all the same: its name does not say where it lies.
func (w *watch) follow(e fanEvent, owners []*watchedSession) {
	const mkdir = unix.FAN_CREATE | unix.FAN_ONDIR
	_, known := w.owners[e.child]
	if e.mask&mkdir != mkdir || e.child == "" || len(w.roots[e.child]) > 0 || known {
		return
	}
	w.owners[e.child] = owners
	for _, s := range owners {
		s.dirs.putChild(e.dir, e.child)
	}
}

// ownersOf are the sessions that see a directory: it is looked for once, and once in a tree
// that many sessions have, as /usr. Events come in thousands, also from what no session sees.
func (w *watch) ownersOf(dir handle) []*watchedSession {
	if dir == "" {
		return nil
	}
	all, ok := w.owners[dir]
	if ok {
		return all
	}
	for root, trees := range w.roots {
		if root.fsid() != dir.fsid() {
			continue
		}
		rel, err := trees[0].pathOf(dir)
		if errors.Is(err, errElsewhere) {
			continue
		}
		for _, t := range trees { // also if the path is unknown: [watch.process] closes it
			if err == nil {
				t.s.dirs.put(dir, t.Path, rel)
			}
			if !slices.Contains(all, t.s) {
				all = append(all, t.s)
			}
		}
	}
	slices.SortFunc(all, func(a, b *watchedSession) int {
		return cmp.Compare(a.session.initProc.chat, b.session.initProc.chat)
	})
	if len(w.owners) > maxFound {
		clear(w.owners)
	}
	w.owners[dir] = all
	return all
}
