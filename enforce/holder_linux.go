package enforce

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// The descriptors that the holder hands to the worker. A worker that becomes the holder has the
// first three already.
const (
	fdListener = 3
	fdPerm     = 4
	fdNames    = 5
	fdHolder   = 6 // ends when the holder does
)

// processName is the name that top and ps -e show. The worker would otherwise be named "exe", after
// the link that starts it.
const processName = "chatd-enforce"

// Run is the program chatd-enforce: the holder, or the worker that it starts. It returns on an
// error or, with IdleEnd, when it has been idle.
func Run(o Options) error {
	if !filepath.IsAbs(o.Dir) {
		return chat.Invalid("cannot keep file rules: --dir is %s, want an absolute path", chat.Quote(o.Dir))
	}
	// Best effort: nothing depends on the name.
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0)
	if o.Worker {
		return work(o)
	}
	return runHolder(o)
}

// lockDir waits up to a second: an enforcer that is ending still holds the lock.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the enforcer's directory: %w", err)
	}
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("cannot keep file rules: another enforcer does: %w",
				chat.ErrBusy), lock.Close())
		}
	}
}

// runHolder is the holder.
func runHolder(o Options) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the enforcer's directory: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	sys.Failpoint("holder.locked")
	// Best effort: without CAP_SYS_RESOURCE the score stays as the unit set it.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	unix.Umask(0o077)
	listener, perm, names := os.NewFile(fdListener, "listener"), fdPerm, fdNames
	if !o.Heir {
		if perm, names, err = takeGroups(o.Dir); err != nil {
			return err
		}
		sys.Failpoint("holder.watched")
		if listener, err = listen(filepath.Join(o.Dir, orders.Socket)); err != nil {
			return err
		}
	}
	sys.Failpoint("holder.listening")
	return keepWorker(o, []*os.File{
		listener, os.NewFile(uintptr(perm), "perm"), os.NewFile(uintptr(names), "names"),
	})
}

// takeGroups returns the groups of the enforcer before, where they are held, or new ones.
func takeGroups(dir string) (perm, names int, err error) {
	held, err := orders.LentGroups(dir)
	if err != nil { // new ones would leave what the old ones were asked about waiting for ever
		return -1, -1, err
	}
	if len(held) == 0 {
		return initWatch()
	}
	return held[0], held[1], nil
}

// listen makes the socket for orders.
func listen(socket string) (*os.File, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the enforcer's socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen for orders: %w", err)
	}
	l.SetUnlinkOnClose(false)
	listener, err := l.File()
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, fmt.Errorf("cannot hand the enforcer's socket on: %w", err)
	}
	return listener, nil
}

// keepWorker starts the worker, and another when it ends.
func keepWorker(o Options, files []*os.File) error {
	ends, alive, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot tell the worker how long this lives: %w", err)
	}
	defer alive.Close()
	for {
		cmd := exec.Command("/proc/self/exe", o.args("--worker")...)
		cmd.Args[0], cmd.ExtraFiles = processName, append(files, ends)
		cmd.Stderr, cmd.Env = os.Stderr, []string{}
		err := cmd.Run()
		if err == nil && o.IdleEnd {
			return os.Remove(filepath.Join(o.Dir, orders.Socket))
		}
		fmt.Fprintf(o.Errs, "%s: the worker ended (%v), and is started again\n", processName, err)
		sys.Failpoint("holder.again")
		time.Sleep(100 * time.Millisecond)
	}
}

// args are the arguments of another process of the enforcer, which is what mode says.
func (o Options) args(mode string) []string {
	args := []string{"--dir", o.Dir, mode}
	if o.IdleEnd {
		args = append(args, "--idle-end")
	}
	return args
}

// inherit makes this worker the holder when that has ended. Without one the groups would end with
// the worker, and opens that nobody is asked about pass. Opens wait until the next worker answers.
func inherit(o Options, holder *os.File) error {
	_, err := holder.Read(make([]byte, 1))
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot wait for the end of the holder: %w", err)
	}
	sys.Failpoint("worker.inherits")
	for _, fd := range []uintptr{fdListener, fdPerm, fdNames} {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("cannot keep what the holder had: %w", err)
		}
	}
	err = unix.Exec("/proc/self/exe", append([]string{processName}, o.args("--heir")...), []string{})
	return fmt.Errorf("cannot become the holder: %w", err)
}

// work is the worker: it resumes the sessions of an earlier worker and serves orders.
func work(o Options) error {
	shared := os.NewFile(fdListener, "listener")
	listener, err := net.FileListener(shared)
	if err != nil {
		return fmt.Errorf("cannot take the enforcer's socket over: %w", err)
	}
	for _, fd := range []int{fdListener, fdPerm, fdNames, fdHolder} {
		unix.CloseOnExec(fd)
	}
	failed := make(chan error, 4)
	go func() {
		failed <- inherit(o, os.NewFile(fdHolder, "holder"))
		_ = shared.Close() // it stays open until then
	}()
	e, err := newEnforcer(o.Dir, fdPerm, fdNames, o.Errs)
	if err != nil {
		return err
	}
	if err := e.resume(); err != nil {
		return err
	}
	sys.Failpoint("worker.ready")
	if o.IdleEnd {
		go func() { e.awaitIdle(); failed <- nil }()
	}
	go func() { failed <- e.watch.run() }()
	go func() { failed <- e.serve(listener) }()
	go e.recheckQueued()
	return <-failed
}
