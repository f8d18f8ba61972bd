package account

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// User is one Linux user and its group of the same name and number.
type User struct {
	Name string
	ID   uint32
	Home string
}

// Backend writes accounts where the Name Service Switch finds them. Create and Remove
// are idempotent; Drift describes how the account differs from what Create left.
type Backend interface {
	Name() string
	Create(context.Context, User) error
	Drift(User) (string, error)
	Remove(context.Context, User) error
}

// The names of the backends, in config and in records.
const (
	UserdbName  = "userdb"
	UseraddName = "useradd"
)

// nologin is the shell in the record: only chatd enters a chat, and it starts the session's
// shell itself.
const nologin = "/usr/sbin/nologin"

// probeName is the account that [Try] makes and removes.
const probeName = chat.UserPrefix + "probe"

// Try makes an account with a number that no chat ever gets, resolves it, and removes it again.
func Try(ctx context.Context, b Backend, uid uint32) error {
	a := User{Name: probeName, ID: uid, Home: "/nonexistent"}
	err := b.Create(ctx, a)
	if err == nil {
		err = Verify(ctx, a)
	}
	err = errors.Join(err, b.Remove(ctx, a))
	if err == nil && !unknownToNSS(ctx, a) {
		err = fmt.Errorf("cannot remove account %s: it still resolves", a.Name)
	}
	return err
}

// toolTimeout bounds one run of useradd(8) or the like, which asks the name services whether the
// name is free. Tests shorten it.
var toolTimeout = 30 * time.Second

// runTool runs a program of the host with a clean environment and returns its
// message when it fails with a code that is not among ok. It is [chat.ErrBusy] if it does not end.
func runTool(ctx context.Context, ok []int, name string, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, toolTimeout)
	defer stop()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if exit, is := errors.AsType[*exec.ExitError](err); is && slices.Contains(ok, exit.ExitCode()) {
		return nil
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("cannot run %s %s: it does not end: a name service may not answer: %w",
			name, strings.Join(args, " "), errors.Join(chat.ErrBusy, ctx.Err()))
	}
	if err != nil {
		return fmt.Errorf("cannot run %s %s: %w: %s", name, strings.Join(args, " "), err,
			bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
