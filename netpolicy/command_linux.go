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

// command runs one program. The program's complaint becomes part of the error, which is
// [chat.ErrBusy] if the program waited for too long.
//
// The owner match takes each uid for a name first, and asks every name service for it
// (libxt_owner.c): the wall would wait for a directory on another host. So the program sees an
// empty nsswitch.conf, with which there are the files in /etc alone.
func command(ctx context.Context, stdin string, name string, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, commandTimeout)
	defer stop()
	return sys.OnThread(func() error {
		_ = hideNameServices() // where it is not possible the program asks them, within its bound
		return execute(ctx, stdin, name, args...)
	})
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

func execute(ctx context.Context, stdin string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin = strings.NewReader(stdin)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	err := cmd.Run()
	if err == nil {
		return nil
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
	if ended && exit.ExitCode() == exitLocked || ctx.Err() != nil {
		err = errors.Join(chat.ErrBusy, err, context.Cause(ctx))
	}
	return fmt.Errorf("cannot run %s %s: %w: %s", name, strings.Join(args, " "), err,
		strings.TrimSpace(complaint.String()))
}
