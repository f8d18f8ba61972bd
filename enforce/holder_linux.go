package enforce

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// The descriptors that the holder hands to the worker.
const (
	fdListener = 3
	fdPerm     = 4
	fdNames    = 5
)

// processName is the name that top and ps -e show. The worker would otherwise be named "exe", after
// the link that starts it.
const processName = "chatd-enforce"

// Run is the program chatd-enforce: the holder, or the worker that it starts. It returns on an
// error or, with IdleEnd, when it has been idle.
func Run(o Options) error {
	if !filepath.IsAbs(o.Dir) {
		return fmt.Errorf("cannot keep file rules: --dir is %s, want an absolute path: %w", chat.Quote(o.Dir), chat.ErrInvalid)
	}
	// Best effort: nothing depends on the name.
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0)
	if o.Worker {
		return work(o)
	}
	return hold(o)
}

// lockDir waits up to a second: an enforcer that is ending still holds the lock.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the keeper's directory: %w", err)
	}
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("cannot keep file rules: another keeper does: %w", chat.ErrBusy), lock.Close())
		}
	}
}

// hold is the holder.
func hold(o Options) error {
	dir := o.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the keeper's directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	// Best effort: without CAP_SYS_RESOURCE the score stays as the unit set it.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	socket := filepath.Join(dir, Socket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot replace the keeper's socket: %w", err)
	}
	perm, names, err := initWatch()
	if err != nil {
		return err
	}
	unix.Umask(0o077)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("cannot listen for orders: %w", err)
	}
	listener, err := l.File()
	if err != nil {
		return fmt.Errorf("cannot hand the keeper's socket on: %w", err)
	}
	files := []*os.File{listener, os.NewFile(uintptr(perm), "perm"), os.NewFile(uintptr(names), "names")}
	for {
		args := []string{"--dir", dir, "--worker"}
		if o.IdleEnd {
			args = append(args, "--idle-end")
		}
		cmd := exec.Command("/proc/self/exe", args...)
		cmd.Args[0], cmd.ExtraFiles, cmd.Stderr, cmd.Env = processName, files, os.Stderr, []string{}
		err := cmd.Run()
		if err == nil && o.IdleEnd {
			return errors.Join(os.Remove(socket), l.Close())
		}
		fmt.Fprintf(o.Errs, "%s: the worker ended (%v), and is started again\n", processName, err)
		time.Sleep(100 * time.Millisecond)
	}
}

// work is the worker: it resumes the sessions of an earlier worker and serves orders.
func work(o Options) error {
	listener, err := net.FileListener(os.NewFile(fdListener, "listener"))
	if err != nil {
		return fmt.Errorf("cannot take the keeper's socket over: %w", err)
	}
	for _, fd := range []int{fdListener, fdPerm, fdNames} {
		unix.CloseOnExec(fd)
	}
	k, err := newEnforcer(o.Dir, fdPerm, fdNames, o.Errs)
	if err != nil {
		return err
	}
	if err := k.resume(); err != nil {
		return err
	}
	failed := make(chan error, 3)
	if o.IdleEnd {
		go func() { k.awaitIdle(); failed <- nil }()
	}
	go func() { failed <- k.watch.run() }()
	go func() { failed <- k.serve(listener) }()
	go k.recheckQueued()
	return <-failed
}
