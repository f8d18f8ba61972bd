package netpolicy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// commandTimeout bounds one program beyond its wait for the xtables lock, which it bounds itself.
const commandTimeout = time.Minute

// exitLocked is iptables' RESOURCE_PROBLEM: another program holds the xtables lock.
const exitLocked = 4

// command runs one program and returns what it printed. The program's complaint becomes part of
// the error, which is [chat.ErrBusy] if the program waited for too long.
//
// The owner match takes each uid for a name first, and asks every name service for it
// (libxt_owner.c): the wall would wait for a directory on another host. So the program sees an
// empty nsswitch.conf, with which there are the files in /etc alone.
func command(
	ctx context.Context, stdin string, name string, args ...string,
) (out string, err error) {
	ctx, stop := context.WithTimeout(ctx, commandTimeout)
	defer stop()
	err = sys.OnThread(func() error {
		_ = hideNameServices() // where it is not possible the program asks them, within its bound
		out, err = execute(ctx, stdin, name, args...)
		return err
	})
	return out, err
}

// hideNameServices empties nsswitch.conf for the programs that this thread starts.
func hideNameServices() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("/dev/null", "/etc/nsswitch.conf", "", unix.MS_BIND, "")
}

func execute(ctx context.Context, stdin string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitLocked || ctx.Err() != nil {
		err = errors.Join(chat.ErrBusy, err, context.Cause(ctx))
	}
	return out.String(), fmt.Errorf("cannot run %s %s: %w: %s", name, strings.Join(args, " "), err,
		strings.TrimSpace(complaint.String()))
}
