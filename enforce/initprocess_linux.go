package enforce

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// initProcess tells one session from all others: its pid 1, and when that started.
type initProcess struct {
	chat  chat.ID
	pid   int
	start uint64
}

func initProcessOf(o orders.Order) initProcess { return initProcess{o.Chat, o.PID, o.Start} }

// openSession opens what belongs to the session of an order. The init process is named by its
// start time too, and asked after everything was opened: so it was the init process's.
func (e *enforcer) openSession(o orders.Order) (*session, error) {
	process, err := sys.OpenProcess(sys.Process{PID: o.PID, Start: o.Start})
	if err != nil {
		return nil, err
	}
	s := &session{e: e, initProc: initProcessOf(o), order: o, process: process, startMasks: startMasks(e.dir)}
	if s.ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", o.PID)); err != nil {
		err = fmt.Errorf("cannot open the mount namespace of process %d: %w", o.PID, err)
	} else if s.ended() {
		err = fmt.Errorf("process %d has ended", o.PID)
	} else {
		err = s.refuseOwn()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// refuseOwn refuses a process in the host's mount namespace, where masks would hit the host.
func (s *session) refuseOwn() error {
	own, err := os.Stat("/proc/self/ns/mnt")
	theirs, errTheirs := s.ns.Stat()
	if err := errors.Join(err, errTheirs); err != nil {
		return fmt.Errorf("cannot compare mount namespaces: %w", err)
	}
	if os.SameFile(own, theirs) {
		return chat.Invalid("process %d has no mount namespace of its own", s.initProc.pid)
	}
	return nil
}

// ended reports that the init process has ended, or that the session was let go of. Its descriptor
// is closed then, and nobody knows what has the number now.
func (s *session) ended() bool { return !s.process.Alive() }

// kill ends the session. One that has ended, or was let go of, is not an error.
func (s *session) kill() error {
	if err := s.process.Signal(unix.SIGKILL); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// close releases the session. It may be called again.
func (s *session) close() {
	s.closed = true
	for _, b := range s.bases {
		b.Close()
	}
	s.bases = nil
	// nil and closed are errors, and neither has anything open
	_, _ = s.process.Close(), s.ns.Close()
}
