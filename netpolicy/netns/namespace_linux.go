package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// Namespace is an open network namespace of a session. Its methods are safe for concurrent use.
type Namespace struct{ file *os.File }

// Open opens the network namespace of a process, which must not be chatd's own.
func Open(p *sys.ProcessHandle) (*Namespace, error) {
	same, err := p.SharesNamespace("net")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot open the network namespace of process %d: %w", p.PID, err)
	case same:
		err = chat.Invalid("cannot use the network of process %d: it is the host's", p.PID)
	case !p.Alive():
		err = fmt.Errorf("cannot use the network of process %d: it has ended: %w",
			p.PID, chat.ErrWrongPhase)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Namespace{f}, nil
}

// Close closes it. The kernel ends the namespace with its last process and socket.
func (n *Namespace) Close() error { return n.file.Close() }

// in calls act on a thread in the namespace.
func (n *Namespace) in(act func() error) error {
	return sys.OnThread(func() error {
		if err := n.join(); err != nil {
			return fmt.Errorf("cannot join a network namespace: %w", err)
		}
		return act()
	})
}

// join moves the calling thread into the namespace. Close waits meanwhile: the descriptor's number
// could be that of another chat's namespace by then.
func (n *Namespace) join() error {
	raw, err := n.file.SyscallConn()
	if err != nil {
		return err
	}
	var joinErr error
	err = raw.Control(func(fd uintptr) { joinErr = unix.Setns(int(fd), unix.CLONE_NEWNET) })
	return errors.Join(err, joinErr)
}
