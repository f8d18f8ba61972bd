package gateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/chatd/chatd/provision/safefs"
)

// socket is where chatd-egress listens; its directory is root's.
func (g *Gateway) socket() string { return filepath.Join(g.opt.Dir, "sock") }

// Prepare makes the directory.
func (g *Gateway) Prepare() error { return safefs.MakeRoot(g.opt.Dir, 0o700) }

// start starts chatd-egress with a socket that listens, as its own user and in an empty network
// namespace. It outlives this process, and ends by itself when nobody needs it.
func (g *Gateway) start() error {
	if err := g.launch(); err != nil {
		return fmt.Errorf("cannot start chatd-egress: %w", err)
	}
	return nil
}

func (g *Gateway) launch() error {
	if err := safefs.CheckProgram(g.opt.Program); err != nil {
		return err
	}
	listener, err := g.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	log, err := g.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := os.Open(g.opt.Program)
	if err != nil {
		return err
	}
	defer program.Close()
	// By descriptor: the directory of the program may be root's alone.
	cmd := exec.Command("/proc/self/fd/4", "--idle-end")
	cmd.Args[0] = "chatd-egress"
	cmd.ExtraFiles = []*os.File{listener, program}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: g.opt.UID, Gid: g.opt.GID},
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := g.opt.Bound(cmd.Process.Pid); err != nil {
		g.opt.Log.Warn("chatd-egress has no cgroup of its own", "why", err)
	}
	go func() { _ = cmd.Wait() }() // its log says why it ended
	return nil
}

// maxLog is the size in bytes from which the log begins anew. chatd-egress bounds its files to
// twice as much.
const maxLog = 1 << 20

// openLog opens the log of the next chatd-egress.
func (g *Gateway) openLog() (*os.File, error) {
	log, err := os.OpenFile(filepath.Join(g.opt.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	if err != nil {
		return nil, err
	}
	st, err := log.Stat()
	if err == nil && st.Size() > maxLog {
		err = log.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// listen makes the socket anew: nobody accepts from the old one.
func (g *Gateway) listen() (*os.File, error) {
	if err := os.Remove(g.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: g.socket(), Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err = errors.Join(err, l.Close(), os.Chmod(g.socket(), 0o600)); err != nil {
		return nil, err
	}
	return f, nil
}
