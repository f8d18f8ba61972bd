package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// process identifies a process. The kernel reuses pids, so it adds the start time in clock
// ticks since boot (proc(5), field 22) and the boot.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// heldProcess is a process with an open pidfd, which never refers to another process.
type heldProcess struct {
	process
	fd *os.File
}

// holdProcess opens a pidfd of p and checks the start time. Without a start time p is a child
// of this daemon: its pid is not reused before the daemon has waited for it.
func holdProcess(p process) (*heldProcess, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot hold process %d: %w", p.PID, err)
	}
	l := &heldProcess{process: p, fd: os.NewFile(uintptr(fd), "pidfd")}
	st, err := sys.ReadStat(p.PID)
	switch {
	case err != nil:
	case p.Start != 0 && p.Start != st.Start:
		err = fmt.Errorf("cannot hold process %d: it started at tick %d, want %d", p.PID, st.Start, p.Start)
	case p.Start != 0 && !l.alive():
		err = fmt.Errorf("cannot hold process %d: it has ended", p.PID)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.Start = st.Start
	return l, nil
}

// Close closes the pidfd; the process lives on.
func (l *heldProcess) Close() error { return l.fd.Close() }

// alive reports whether the process has not ended. A pidfd becomes readable
// when it does (pidfd_open(2)).
func (l *heldProcess) alive() bool {
	rc, err := l.fd.SyscallConn()
	if err != nil {
		return false
	}
	ended := true
	if err := rc.Control(func(fd uintptr) { ended = pollIn(int(fd)) }); err != nil {
		return false
	}
	return !ended
}

// ending reports whether the process has ended or is exiting: its namespace's other processes
// end before it does.
func (l *heldProcess) ending() bool {
	st, err := sys.ReadStat(l.PID)
	// alive comes after the read: while the process lives, no other has its pid.
	return !l.alive() || err == nil && st.Flags&sys.Exiting != 0
}

// wait returns when the process has ended or l was closed. It waits in
// the runtime's poller: an awake chat costs no thread of the daemon.
func (l *heldProcess) wait() error {
	rc, err := l.fd.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool { return pollIn(int(fd)) })
}

// ended returns a channel that is closed when the process has ended or l was closed.
func (l *heldProcess) ended() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.wait() // an error means that l was closed
	}()
	return done
}

// waitExit waits for the end of a session whose cgroup was killed. Meanwhile it reaps the
// daemon's own orphaned children, because a pid namespace ends only when its last process has
// been reaped. The host's init reaps what an earlier daemon started.
func (l *heldProcess) waitExit(ctx context.Context, uid uint32) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := sys.CollectOrphans(uid); err != nil {
			return err
		}
		if !l.alive() {
			return sys.CollectOrphans(uid)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the end of process %d: %w", l.PID, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

func pollIn(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents != 0
}

// namespaceTypes are the namespaces that a run joins, in the order of nsenter's options.
var namespaceTypes = []string{"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"}

// nsenterFlags are nsenter(1)'s names for them.
var nsenterFlags = map[string]string{
	"user": "user", "mnt": "mount", "pid": "pid", "ipc": "ipc", "uts": "uts", "net": "net", "cgroup": "cgroup",
}

// namespaces opens the namespaces of the process that differ from the daemon's. It opens
// them by pid and then checks the pidfd: while the process lives, no other has its pid.
func (l *heldProcess) namespaces() (map[string]*os.File, error) {
	files := map[string]*os.File{}
	for _, t := range namespaceTypes {
		name := fmt.Sprintf("/proc/%d/ns/%s", l.PID, t)
		if same, err := sameNamespace(name, "/proc/self/ns/"+t); err != nil || same {
			if err != nil {
				return nil, errors.Join(err, closeAll(files))
			}
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot open a namespace of process %d: %w", l.PID, err), closeAll(files))
		}
		files[t] = f
	}
	if !l.alive() {
		return nil, errors.Join(fmt.Errorf("cannot join process %d: it has ended", l.PID), closeAll(files))
	}
	return files, nil
}

func sameNamespace(a, b string) (bool, error) {
	la, err := os.Readlink(a)
	if err != nil {
		return false, fmt.Errorf("cannot read namespace %s: %w", a, err)
	}
	lb, err := os.Readlink(b)
	if err != nil {
		return false, fmt.Errorf("cannot read namespace %s: %w", b, err)
	}
	return la == lb, nil
}

func closeAll(files map[string]*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// bootID is the kernel's name for this boot (random(4)).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell this boot from another: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// signalName is the name of a signal as in "SIGKILL".
func signalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("SIG%d", int(s))
}
