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
func openSession(o orders.Order) (*session, error) {
	fd, err := unix.PidfdOpen(o.PID, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot hold process %d: %w", o.PID, err)
	}
	k := &session{initProc: initProcessOf(o), order: o, pidfd: os.NewFile(uintptr(fd), "pidfd")}
	if k.ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", o.PID)); err != nil {
		k.close()
		return nil, fmt.Errorf("cannot open the mount namespace of process %d: %w", o.PID, err)
	}
	st, err := sys.ReadStat(o.PID)
	if err == nil && o.Start != 0 && st.Start != o.Start {
		err = fmt.Errorf("process %d started at tick %d, want %d", o.PID, st.Start, o.Start)
	}
	if err == nil && k.ended() {
		err = fmt.Errorf("process %d has ended", o.PID)
	}
	if err == nil {
		err = k.refuseOwn()
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// refuseOwn refuses a process in the host's mount namespace, where masks would hit the host.
func (s *session) refuseOwn() error {
	own, err := os.Stat("/proc/self/ns/mnt")
	theirs, errTheirs := s.ns.Stat()
	if err := errors.Join(err, errTheirs); err != nil {
		return fmt.Errorf("cannot compare mount namespaces: %w", err)
	}
	if os.SameFile(own, theirs) {
		return fmt.Errorf("process %d has no mount namespace of its own: %w", s.initProc.pid, chat.ErrInvalid)
	}
	return nil
}

// ended reports that the init process has ended, or that the session was let go of. Its descriptor
// is closed then, and nobody knows what has the number now.
func (s *session) ended() bool {
	ended := true
	err := sys.OnDescriptor(s.pidfd, func(fd int) error {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		for err == unix.EINTR { // also without a wait, where a signal of the runtime is pending
			n, err = unix.Poll(p, 0)
		}
		ended = n > 0
		return err
	})
	return ended || err != nil
}

// kill ends the session. One that has ended, or was let go of, is not an error.
func (s *session) kill() error {
	err := sys.OnDescriptor(s.pidfd, func(fd int) error {
		return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	})
	if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// close releases the session. It may be called again.
func (s *session) close() {
	s.closed = true
	for _, b := range s.bases {
		b.Close()
	}
	s.bases = nil
	for _, f := range []*os.File{s.pidfd, s.ns} {
		_ = f.Close() // nil and closed are errors, and neither has anything open
	}
}
