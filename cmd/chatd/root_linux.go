package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/config/configfile"
)

func init() {
	checkHost, checkPlaces = checkHostByRoot, checkPlacesByRoot
	probeHost, raiseWall = doctorHost, wallHost
}

// rootProgram is chatd-root, for what needs the privilege.
func rootProgram(verb string, f configfile.Flags) (program string, args []string, err error) {
	what := map[string]string{"serve": "serve", "doctor": "probe the layers", "wall": "raise the wall"}[verb]
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

// doctorHost is doctor where no daemon answers, in a network namespace where packet rules can
// be raised and tried without touching the host's.
func doctorHost(ctx context.Context, f configfile.Flags) (host chat.Host, err error) {
	out, err := askRoot(ctx, "doctor", f, syscall.CLONE_NEWNET)
	if err != nil {
		return host, err
	}
	if err := json.Unmarshal(out, &host); err != nil {
		return host, fmt.Errorf("cannot read what chatd-root found: %w", err)
	}
	return host, nil
}

func wallHost(ctx context.Context, f configfile.Flags) (uids config.UIDRange, err error) {
	out, err := askRoot(ctx, "wall", f, 0)
	if err != nil {
		return uids, err
	}
	if err := json.Unmarshal(out, &uids); err != nil {
		return uids, fmt.Errorf("cannot read what chatd-root did: %w", err)
	}
	return uids, nil
}

// askRoot runs chatd-root for one act, and returns what it printed. Where that is not installed,
// the error is fs.ErrNotExist.
func askRoot(
	ctx context.Context, verb string, f configfile.Flags, flags uintptr, more ...string,
) ([]byte, error) {
	program, args, err := rootProgram(verb, f)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append(args[1:], more...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
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

// checkHostByRoot runs chatd-root to check what the config's profiles open of this host.
func checkHostByRoot(ctx context.Context, f configfile.Flags) error {
	_, err := askRoot(ctx, "check", f, 0)
	return err
}

// checkPlacesByRoot has chatd-root count what the rules of a file match on this host.
func checkPlacesByRoot(ctx context.Context, file string) (refused filerules.Faults, err error) {
	out, err := askRoot(ctx, "check", configfile.Flags{}, 0, "--policy="+file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &refused); err != nil {
		return nil, fmt.Errorf("cannot read what chatd-root found: %w", err)
	}
	return refused, nil
}
