package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sockets"
	"github.com/chatd/chatd/sys"
)

const (
	// socketsEvery is the interval between two counts of the sessions' sockets. It bounds what
	// a chat fills in between; a count costs microseconds for each session.
	socketsEvery = 250 * time.Millisecond
	// unchanged is how many rounds lie between two lists of a session that shows no growth.
	unchanged = 20
	// grownPages is the growth of TCP and UDP pages from which a session is listed again.
	grownPages = 16 << 20 / 4096
	// locksRounds is how many rounds lie between two counts of record locks.
	locksRounds = 4
	// fewSockets is a number of sockets that never hold a share; they are not listed.
	fewSockets = 16
	// maxLocks is how many record locks a chat may have: they take 200 bytes each, charged to
	// no cgroup, and no program of a chat needs hundreds.
	maxLocks = 10_000
	// leastShare is the smallest share, in bytes, whatever memory_max.
	leastShare = 16 << 20
)

// socketShare is how much the kernel may hold for a chat's sockets, in bytes. Part of it
// is charged to memory_max as well, on some kernels all.
func socketShare(l chat.Limits) uint64 { return max(l.MemoryMax/2, leastShare) }

// socketWatch ends the sessions that hold more than their share. It belongs to one goroutine.
type socketWatch struct {
	m      *Manager
	round  int
	own    *sockets.Room // the daemon's, which holds the chats with a shared network
	rooms  map[*session]*socketRoom
	shared socketRoom
	locks  socketRoom // only its field complained is used
	// unlisted is the size in bytes that counts for a socket that no list shows.
	unlisted uint64
}

// socketRoom is one network namespace and the results of its last list.
type socketRoom struct {
	*sockets.Room               // nil: the session is in the daemon's
	listed        sockets.Count // the count at the last list; Pages is the least since then
	near          bool          // some session holds over a quarter of its share
	complained    error         // the last error, which is logged once
}

// watchSockets checks all sessions until ctx ends.
func (m *Manager) watchSockets(ctx context.Context) {
	w := &socketWatch{m: m, rooms: map[*session]*socketRoom{}}
	defer w.close()
	if err := w.open(); err != nil {
		m.setFinding("what sockets hold", err)
		return
	}
	tick := time.NewTicker(socketsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(ctx)
		}
	}
}

func (w *socketWatch) open() (err error) {
	if w.unlisted, err = sockets.UnlistedMax(); err != nil {
		return err
	}
	w.own, err = sockets.Open(os.Getpid())
	w.shared.Room = w.own
	return err
}

func (w *socketWatch) close() {
	for s, room := range w.rooms {
		w.forget(s, room)
	}
	if w.own != nil {
		_ = w.own.Close() // it was opened for reading
	}
}

func (w *socketWatch) forget(s *session, room *socketRoom) {
	if room.Room != nil {
		_ = room.Close() // it was opened for reading
	}
	delete(w.rooms, s)
}

// look runs one round of checks.
func (w *socketWatch) look(ctx context.Context) {
	w.round++
	awake := w.m.awake()
	for s, room := range w.rooms {
		if !awake[s] {
			w.forget(s, room)
		}
	}
	var shared []*session
	for s := range awake {
		room, err := w.room(s)
		switch {
		case err != nil: // it is ending
		case room.Room == nil:
			shared = append(shared, s)
		default:
			w.complain(room, s.id, w.lookAlone(ctx, s, room))
		}
	}
	if len(shared) > 0 {
		w.complain(&w.shared, "", w.lookShared(ctx, shared))
	}
	if w.round%locksRounds == 0 {
		w.complain(&w.locks, "", w.lookAtLocks(ctx, awake))
	}
}

// complain logs the first of consecutive errors; err == nil ends such a series.
func (w *socketWatch) complain(room *socketRoom, id chat.ID, err error) {
	if err != nil && room.complained == nil {
		w.m.log.Error("cannot tell what sockets and locks hold", "chat", id, "error", err)
	}
	room.complained = err
}

// awake returns the current sessions.
func (m *Manager) awake() map[*session]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[*session]bool, len(m.sessions))
	for _, s := range m.sessions {
		all[s] = true
	}
	return all
}

// room returns the session's network namespace, which the first call opens.
func (w *socketWatch) room(s *session) (*socketRoom, error) {
	if room, ok := w.rooms[s]; ok {
		return room, nil
	}
	same, err := s.init.SharesNamespace("net")
	if err != nil {
		return nil, err
	}
	room := &socketRoom{}
	if !same {
		if room.Room, err = sockets.Open(s.init.PID); err != nil {
			return nil, err
		}
	}
	if !s.init.Alive() { // the pid that was opened may be another process's
		w.forget(s, room)
		return nil, errors.New("the session has ended")
	}
	w.rooms[s] = room
	return room, nil
}

// due reports whether the room must be listed now: it has more than fewSockets, and it has
// grown, some session is near its share, or a multiple of unchanged rounds has passed.
func (w *socketWatch) due(room *socketRoom) (bool, error) {
	now, err := room.Count()
	if err != nil || now.Sockets <= fewSockets {
		return false, err
	}
	grown := now.Sockets > room.listed.Sockets+fewSockets/2 || now.Pages > room.listed.Pages+grownPages
	room.listed.Pages = min(room.listed.Pages, now.Pages)
	if !grown && !room.near && w.round%unchanged != 0 {
		return false, nil
	}
	room.listed = now
	return true, nil
}

// lookAlone checks a session with a network of its own by all sockets in that network.
func (w *socketWatch) lookAlone(ctx context.Context, s *session, room *socketRoom) error {
	due, err := w.due(room)
	if err != nil || !due {
		return err
	}
	found, err := room.Look()
	if !s.init.Alive() {
		return nil
	}
	if err != nil {
		return err
	}
	room.near = w.judge(ctx, s, found.All, found.Unlisted)
	return nil
}

// lookShared checks the sessions of the shared network, each by the sockets of its uid.
func (w *socketWatch) lookShared(ctx context.Context, all []*session) error {
	due, err := w.due(&w.shared)
	if err != nil || !due {
		return err
	}
	found, err := w.shared.Look()
	if err != nil {
		return err
	}
	w.shared.near = false
	for _, s := range all {
		unlisted := 0
		if share := w.share(s); uint64(found.Unlisted)*w.unlisted > share {
			pids, err := w.m.groups.Members(s.id)
			if err != nil {
				continue // it is ending
			}
			unlisted = sockets.UnlistedOf(pids, found.Inodes, int(share/w.unlisted)+1)
		}
		if w.judge(ctx, s, found.ByUID[s.uid], unlisted) {
			w.shared.near = true
		}
	}
	return nil
}

// judge ends a session that holds more than its share, and reports whether it is near it.
func (w *socketWatch) judge(ctx context.Context, s *session, h sockets.Usage, unlisted int) (near bool) {
	holds, share := h.Bytes+uint64(unlisted)*w.unlisted, w.share(s)
	if holds > share {
		w.m.endFor(ctx, s, fmt.Sprintf("the kernel held up to %d MiB for its sockets, of which there were %d: more than its share of %d MiB, half of memory_max",
			holds>>20, h.Sockets+unlisted, share>>20))
	}
	return holds > share/4
}

func (w *socketWatch) share(s *session) uint64 {
	rec, err := w.m.store.Get(s.id)
	if err != nil {
		return leastShare // it is being reaped
	}
	return socketShare(w.m.profile(rec).Limits)
}

// lookAtLocks ends sessions with too many record locks.
func (w *socketWatch) lookAtLocks(ctx context.Context, awake map[*session]bool) error {
	byPid, err := sockets.Locks()
	if err != nil {
		return err
	}
	byUID := map[uint32]int{}
	for pid, n := range byPid {
		if uid, err := sys.UIDOf(pid); err == nil { // else it has ended, and so have its locks
			byUID[uid] += n
		}
	}
	for s := range awake {
		if n := byUID[s.uid]; n > maxLocks {
			w.m.endFor(ctx, s, fmt.Sprintf("it held more than %d record locks, which are kernel memory that no limit counts", maxLocks))
		}
	}
	return nil
}

// endFor ends a session for a reason, which the audit of its end names. The caller does not
// wait for the end.
func (m *Manager) endFor(ctx context.Context, s *session, why string) {
	if !s.endedFor.CompareAndSwap(nil, &why) {
		return
	}
	m.log.Warn("ending a session", "chat", s.id, "why", why)
	m.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		rec, err := m.store.Get(s.id)
		if err == nil {
			err = m.killGroup(ctx, rec)
		}
		if err != nil && !errors.Is(err, chat.ErrNotFound) { // reaped meanwhile
			m.setFinding("session "+string(s.id), err)
		}
	})
}
