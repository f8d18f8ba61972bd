package unshare

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// InOwn gives the calling thread a mount namespace of its own, a copy of what it had,
// and calls act there. The caller has locked the thread and lets it die.
func InOwn(act func() error) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot make a mount namespace: %w", err)
	}
	return act()
}

// Try stages the trees in a namespace that is gone when it returns.
func Try(t Trees) error {
	return sys.OnThread(func() error {
		return InOwn(func() error {
			_, err := Stage(t)
			return err
		})
	})
}

// In calls act on a thread in the mount namespace of p, which must not be the host's.
func In(p *sys.ProcessHandle, act func() error) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.PID))
	if err != nil {
		return fmt.Errorf("cannot open the mount namespace of process %d: %w", p.PID, err)
	}
	defer ns.Close()
	if err := refuseHost(p, ns); err != nil {
		return err
	}
	return sys.InMountNamespace(ns, act)
}

// refuseHost refuses the mount namespaces of the host, in which every process would see a mount. ns
// is that of p if p lives afterwards.
func refuseHost(p *sys.ProcessHandle, ns *os.File) error {
	theirs, err := ns.Stat()
	if err != nil {
		return fmt.Errorf("cannot look at the mount namespace of process %d: %w", p.PID, err)
	}
	for _, other := range []string{"/proc/self/ns/mnt", "/proc/1/ns/mnt"} {
		host, err := os.Stat(other)
		if errors.Is(err, os.ErrPermission) {
			continue // process 1 is of another container, and started none of chatd's processes
		}
		if err != nil {
			return fmt.Errorf("cannot look at %s: %w", other, err)
		}
		if os.SameFile(host, theirs) {
			return chat.Invalid("cannot mount for process %d: it has no mount namespace of its own", p.PID)
		}
	}
	if !p.Alive() {
		return fmt.Errorf("cannot mount for process %d: it has ended: %w", p.PID, chat.ErrWrongPhase)
	}
	return nil
}
