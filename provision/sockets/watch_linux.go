package sockets

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

const (
	// lookEvery is the interval between two counts of the sessions' sockets. It bounds what
	// a chat fills in between; a count costs microseconds for each session.
	lookEvery = 250 * time.Millisecond
	// locksRounds is how many rounds lie between two counts of record locks.
	locksRounds = 4
)

// Session is one awake chat.
type Session struct {
	Chat chat.ID
	UID  uint32
	// Init is its first process, in the session's network namespace.
	Init *sys.ProcessHandle
	// MemoryMax is the chat's limit of memory, in bytes; 0 for a chat that is being reaped.
	MemoryMax uint64
}

// Options are what a [Watch] asks for and reports to.
type Options struct {
	// Awake returns the current sessions. It is called four times a second.
	Awake func() []Session
	// Members lists the processes of a chat; an error means that its session is ending.
	Members func(chat.ID) ([]int, error)
	// End ends a session and does not wait for the end. It is called again while the session
	// still holds too much.
	End func(s Session, why string)
	Log *slog.Logger
}

// watch is the state of a [Watch]. It belongs to one goroutine.
type watch struct {
	Options
	round    int
	networks map[*sys.ProcessHandle]*network
	shared   network
	locks    network // only its field complained is used
	// unlisted is the size in bytes that counts for a socket that no list shows.
	unlisted uint64
}

// network is one network namespace and the results of its last list.
type network struct {
	*room                  // nil: the session is in this process's
	listed     socketCount // the count at the last list; Pages is the least since then
	near       bool        // some session holds over a quarter of its share
	complained error       // the last error, which is logged once
}

// Watch checks all sessions until ctx ends, and ends those whose sockets or record locks hold
// more kernel memory than their share. It returns an error if it cannot begin.
func Watch(ctx context.Context, opt Options) error {
	w := &watch{Options: opt, networks: map[*sys.ProcessHandle]*network{}}
	defer w.close()
	if err := w.open(); err != nil {
		return err
	}
	chat.Every(ctx, lookEvery, w.look)
	return nil
}

func (w *watch) open() (err error) {
	if w.unlisted, err = unlistedMax(); err == nil {
		w.shared.room, err = open(os.Getpid())
	}
	return err
}

func (w *watch) close() {
	for init, n := range w.networks {
		w.forget(init, n)
	}
	if w.shared.room != nil {
		_ = w.shared.close() // it was opened for reading
	}
}

func (w *watch) forget(init *sys.ProcessHandle, n *network) {
	if n.room != nil {
		_ = n.close() // it was opened for reading
	}
	delete(w.networks, init)
}

// look runs one round of checks.
func (w *watch) look() {
	w.round++
	awake := w.Awake()
	w.forgetEnded(awake)
	var shared []Session
	for _, s := range awake {
		n, err := w.network(s)
		switch {
		case err != nil: // it is ending
		case n.room == nil:
			shared = append(shared, s)
		default:
			w.complain(n, s.Chat, w.lookAlone(s, n))
		}
	}
	if len(shared) > 0 {
		w.complain(&w.shared, "", w.lookShared(shared))
	}
	if w.round%locksRounds == 0 {
		w.complain(&w.locks, "", w.lookAtLocks(awake))
	}
}

// forgetEnded closes the network namespaces of sessions that are not awake any more.
func (w *watch) forgetEnded(awake []Session) {
	is := make(map[*sys.ProcessHandle]bool, len(awake))
	for _, s := range awake {
		is[s.Init] = true
	}
	for init, n := range w.networks {
		if !is[init] {
			w.forget(init, n)
		}
	}
}

// complain logs the first of consecutive errors; err == nil ends such a series.
func (w *watch) complain(n *network, id chat.ID, err error) {
	if err != nil && n.complained == nil {
		w.Log.Error("cannot tell what sockets and locks hold", "chat", id, "error", err)
	}
	n.complained = err
}

// network returns the session's network namespace, which the first call opens.
func (w *watch) network(s Session) (*network, error) {
	if n, ok := w.networks[s.Init]; ok {
		return n, nil
	}
	same, err := s.Init.SharesNamespace("net")
	if err != nil {
		return nil, err
	}
	n := &network{}
	if !same {
		if n.room, err = open(s.Init.PID); err != nil {
			return nil, err
		}
	}
	if !s.Init.Alive() { // the pid that was opened may be another process's
		w.forget(s.Init, n)
		return nil, errors.New("the session has ended")
	}
	w.networks[s.Init] = n
	return n, nil
}
