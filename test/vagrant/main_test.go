//go:build e2e

package vagrant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// Where deploy/ansible puts things.
const (
	program  = "/usr/local/sbin/chatd"
	socket   = "/run/chatd/chatd.sock"
	stateDir = "/var/lib/chatd"
	homesDir = "/srv/chatd/homes"
	// snapshotsDir has clones of homes, while they are archived.
	snapshotsDir = homesDir + "/.snapshots"
	userdb       = "/etc/userdb"
	slice        = "chatd.slice"
	// notes outlive a reboot and a power cut. Only root enters.
	notes = "/root/chatd-e2e"
)

// uidLow and uidHigh are the range of the config's default.
const (
	uidLow  = 1879048192
	uidHigh = 1895825407
)

// timeout is how long a thing may take that takes a moment: an emulated machine
// with one core of its own is 30 times slower than a real one.
const timeout = 3 * time.Minute

// undo is what the process changed for all tests; TestMain puts it back.
var undo []func() error

func TestMain(m *testing.M) {
	if os.Getenv("CHATD_E2E_ACT") == "boot" {
		os.Exit(actBoot())
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "cannot test the machine: needs root")
		os.Exit(1)
	}
	code := m.Run()
	for i := len(undo) - 1; i >= 0; i-- {
		if err := undo[i](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// try runs a program for at most limit and returns what it printed on both
// streams. Nobody waits for what it left behind with the pipe open.
func try(limit time.Duration, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(bounded(limit), name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("cannot run %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// output is try for what must succeed.
func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(must.Get(try(timeout, name, args...))(t))
}

// shell runs a script of sh that must succeed.
func shell(t testing.TB, script string) string {
	t.Helper()
	return output(t, "sh", "-c", script)
}

// cli asks chatd through its command line and reads the JSON it prints.
func cli(t testing.TB, v any, args ...string) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"--json"}, args...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	must.True(t, err == nil, "chatd %s: %v: %s%s", strings.Join(args, " "), err, complaint.String(), out)
	err = json.Unmarshal(out, v)
	must.True(t, err == nil, "chatd %s: %v in %q", strings.Join(args, " "), err, out)
}

// asker is this process's client; root is an operator.
var asker = client.NewClient(client.ClientOptions{Socket: socket})

// bounded is a context that outlives the test's own end, for cleaning up too.
func bounded(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	context.AfterFunc(ctx, cancel)
	return ctx
}

var externals atomic.Uint64

// external is an external id that nobody had before.
func external(t testing.TB) string {
	return fmt.Sprintf("e2e:%s:%d:%d", t.Name(), os.Getpid(), externals.Add(1))
}

// create makes an awake chat of the profile; it is reaped when the test ends.
func create(t testing.TB, profile string) chat.Chat {
	t.Helper()
	c := must.Get(ask(chat.Spec{ExternalID: external(t), Profile: profile}))(t)
	t.Cleanup(func() { expect.NoError(t, reap(c.ID)) })
	return c
}

func ask(spec chat.Spec) (chat.Chat, error) {
	ctx := bounded(timeout)
	var c chat.Chat
	err := whenNotBusy(ctx, func() (err error) { c, _, err = asker.Create(ctx, spec); return err })
	return c, err
}

// whenNotBusy asks again while chatd is busy, as a bridge does: it begins nothing while packet
// rules that somebody changed are being put right, which takes an emulated machine a while.
func whenNotBusy(ctx context.Context, ask func() error) error {
	for {
		if err := ask(); !errors.Is(err, chat.ErrBusy) || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

// reap ends a chat; one that is gone already is not an error.
func reap(id chat.ID) error {
	err := asker.Reap(bounded(timeout), id)
	if errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	return err
}

// get is the chat as it is now.
func get(t testing.TB, id chat.ID) chat.Chat {
	t.Helper()
	return must.Get(asker.Get(bounded(timeout), id))(t)
}

// run runs a shell command in the chat, which may end as it likes.
func run(t testing.TB, id chat.ID, command string) chat.RunResult {
	t.Helper()
	ctx := bounded(5 * time.Minute)
	spec := chat.RunSpec{Command: command, Timeout: chat.Duration(4 * time.Minute)}
	var r chat.RunResult
	err := whenNotBusy(ctx, func() (err error) { r, err = asker.Run(ctx, id, spec); return err })
	must.True(t, err == nil, "run %q in %s: %v", command, id, err)
	return r
}

// said is what a command that must succeed in the chat prints.
func said(t testing.TB, id chat.ID, command string) string {
	t.Helper()
	r := run(t, id, command)
	must.True(t, r.Exit == 0, "run %q in %s: %+v", command, id, r)
	return strings.TrimSpace(r.Stdout)
}

// eventually wants ok to become true within limit.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(200 * time.Millisecond) {
		must.True(t, !time.Now().After(end), "%s: not within %v", what, limit)
	}
}

// all lists every chat.
func all(t testing.TB) []chat.Chat {
	t.Helper()
	var chats []chat.Chat
	for f := (chat.Filter{Limit: 1000}); ; {
		page := must.Get(asker.List(bounded(timeout), f))(t)
		chats = append(chats, page.Chats...)
		if f.Cursor = page.Next; f.Cursor == "" {
			return chats
		}
	}
}
