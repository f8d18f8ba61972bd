package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/config/configfile"
)

// rootProgram is chatd-root, for what needs the privilege.
func rootProgram(verb string, f configfile.Flags) (program string, args []string, err error) {
	what := rootVerbs[verb]
	if verb != "check" {
		err = needRoot(what)
	}
	if err == nil && (verb == "serve" || verb == "doctor") {
		err = needCapabilities(what)
	}
	if err != nil {
		return "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("cannot %s: %w", verb, err)
	}
	args = []string{"chatd-root", verb, "--front=" + self}
	if f.File != "" {
		args = append(args, "--config="+f.File)
	}
	for _, s := range f.Set {
		args = append(args, "--set="+s.Text())
	}
	return findProgram("chatd-root"), args, nil
}

// becomeRoot is chatd serve from here on: one process, one unit, one command.
func becomeRoot(f configfile.Flags) error {
	program, args, err := rootProgram("serve", f)
	if err != nil {
		return err
	}
	inherit, err := inherited()
	if err != nil {
		return err
	}
	err = unix.Exec(program, append(args, inherit...), os.Environ())
	return fmt.Errorf("cannot serve: %s: %w: install it beside chatd or in /usr/local/lib/chatd: %w",
		chat.Quote(program), err, chat.ErrUnsupported)
}

// inherited is the socket that systemd made for chatd.socket, for chatd-root to take over. The
// variables are taken away, so that no program chatd starts believes that they are meant for it.
func inherited() ([]string, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	if len(files) > 1 {
		return nil, chat.Invalid("cannot use the sockets that were handed over: got %d, want only that of "+
			"chatd.socket", len(files))
	}
	fd, err := unix.Dup(int(files[0].Fd())) // which goes through execve(2), and the other does not
	if err != nil {
		return nil, fmt.Errorf("cannot hand the socket on: %w", err)
	}
	return []string{fmt.Sprintf("--inherit=%d", fd)}, nil
}

// runRoot is [askRoot]. doctor has a network namespace, where packet rules can be raised and tried
// without touching the host's.
func runRoot(ctx context.Context, verb string, f configfile.Flags, more ...string) ([]byte, error) {
	program, args, err := rootProgram(verb, f)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append(args[1:], more...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if verb == "doctor" {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, client.ErrorOf(exit.ExitCode(),
			strings.TrimPrefix(strings.TrimSpace(said.String()), "chatd: "))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot %s: %s: %w: %w", verb, chat.Quote(program), err, chat.ErrUnsupported)
	}
	return out, nil
}
