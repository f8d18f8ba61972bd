package keeper

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
)

// The descriptors that the holder hands to the worker.
const (
	fdListener = 3
	fdPerm     = 4
	fdNames    = 5
)

// Run is the program chatd keep: the holder, or the worker that it starts. It returns
// only when it cannot go on.
func Run(dir string, worker bool, errs io.Writer) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("cannot keep file rules: --dir is %s, want an absolute path: %w", chat.Quote(dir), chat.ErrInvalid)
	}
	if worker {
		return work(dir, errs)
	}
	return hold(dir, errs)
}

// hold is the holder.
func hold(dir string, errs io.Writer) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the keeper's directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot lock the keeper's directory: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("cannot keep file rules: another keeper does: %w", chat.ErrBusy)
	}
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
		cmd := exec.Command("/proc/self/exe", "keep", "--dir", dir, "--worker")
		cmd.Args[0], cmd.ExtraFiles, cmd.Stderr, cmd.Env = "chatd", files, os.Stderr, []string{}
		err := cmd.Run()
		fmt.Fprintf(errs, "chatd keep: the worker of the keeper ended (%v), and is started again\n", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// work is the worker: it takes up what an earlier one did, and serves.
func work(dir string, errs io.Writer) error {
	listener, err := net.FileListener(os.NewFile(fdListener, "listener"))
	if err != nil {
		return fmt.Errorf("cannot take the keeper's socket over: %w", err)
	}
	for _, fd := range []int{fdListener, fdPerm, fdNames} {
		unix.CloseOnExec(fd)
	}
	k, err := newKeeper(dir, fdPerm, fdNames, errs)
	if err != nil {
		return err
	}
	if err := k.takeUp(); err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- k.watch.run() }()
	go func() { failed <- k.serve(listener) }()
	go k.lookAgain()
	return <-failed
}
