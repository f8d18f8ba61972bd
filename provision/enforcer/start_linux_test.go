package enforcer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOnlyRootsProgramIsStarted: no enforcer is started that anybody but root could have written.
// The error says what was expected, and nothing is made before.
func TestOnlyRootsProgramIsStarted(t *testing.T) {
	file, dir := filepath.Join(t.TempDir(), "program"), filepath.Join(t.TempDir(), "run", "keeper")
	must.Do(t, os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o757))
	for program, want := range map[string]string{
		file: "may write to it", filepath.Dir(file): "want a file that may be executed",
		file + "-none": "no such file", "": "no such file",
	} {
		err := client(Options{Dir: dir, Program: program}).Start(t.Context())
		expect.True(t, errors.Is(err, chat.ErrUnsupported) && says(err, want),
			"%q is started: %v, want %q", program, err, want)
		if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: the run directory: %v, want none", program, err)
		}
	}
}

// starter is a client that may start fakeProgram, which ends with the test.
func starter(t *testing.T, dir, how string) *Client {
	t.Helper()
	needsRoot(t)
	self := must.Get(os.Executable())(t)
	if how != "" {
		must.Do(t, os.WriteFile(filepath.Join(dir, "how"), []byte(how), 0o600))
	}
	c := client(Options{Dir: dir, Program: self})
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(dir, "how"))
		_ = c.Drop(context.Background(), someSession.Chat)
	})
	return c
}

// TestSimultaneousStarts: of several that start an enforcer simultaneously, in one process and in
// several, each finds the one that is there then.
func TestSimultaneousStarts(t *testing.T) {
	dir := t.TempDir()
	started := make(chan error)
	clients := []*Client{starter(t, dir, ""), starter(t, dir, "")}
	for _, c := range clients {
		for range 3 {
			go func() { started <- c.Start(t.Context()) }()
		}
	}
	for range 3 * len(clients) {
		expect.NoError(t, <-started)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", fi.Mode(), err)
	}
}

// TestStartFails: a program that ends is an error with its last words; one that never answers is
// waited for as long as the caller does, and by others no longer than they do.
func TestStartFails(t *testing.T) {
	err := starter(t, t.TempDir(), "ends").Start(t.Context())
	expect.True(t, errors.Is(err, chat.ErrUnsupported) && says(err, `it ended: "it cannot go on`),
		"a program that ends: %v", err)
	dir := t.TempDir()
	c := starter(t, dir, "waits")
	gone := errors.New("the caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error)
	go func() { first <- c.Start(ctx) }()
	until(t, "the first has started it", func() bool {
		_, err := os.Stat(c.logFile())
		return err == nil
	})
	short, end := context.WithCancel(t.Context())
	end()
	for range 10 { // each might take the first's place
		expect.Is(t, c.Start(short), context.Canceled, "one that waits behind another")
	}
	select {
	case err := <-first:
		t.Errorf("control: the first has ended: %v", err)
	default:
	}
	cancel(gone)
	if err := <-first; !errors.Is(err, gone) || !strings.HasPrefix(err.Error(), "cannot wait") {
		t.Errorf("a program that never answers: %v", err)
	}
}

// TestStartsAgain: a program that ended is started again, and finds its directory as it left it.
func TestStartsAgain(t *testing.T) {
	dir := t.TempDir()
	c := starter(t, dir, "")
	for range 3 {
		must.Do(t, c.Start(t.Context()), c.Drop(t.Context(), someSession.Chat))
		must.Do(t, os.Remove(filepath.Join(dir, orders.Socket)))
	}
}

// TestStartAwaitsUnit: with systemd no program is started, and the unit's answer is waited for.
func TestStartAwaitsUnit(t *testing.T) {
	dir := t.TempDir()
	c := client(Options{Dir: dir, Program: "/none", Unit: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, c.Start(ctx), context.Canceled, "a caller that is gone")
	started := make(chan error)
	go func() { started <- c.Start(t.Context()) }()
	const maxAsks = 5 // more than one Probe asks
	lost := make(chan struct{}, maxAsks)
	f := answers(t, dir, func(conn *net.UnixConn, o orders.Order) {
		select {
		case lost <- struct{}{}: // as a unit does that is starting
		default:
			with("{}\n")(conn, o)
		}
	})
	if err := <-started; err != nil || f.asked(orders.Probe) <= maxAsks {
		t.Errorf("a unit that answers: %v, asked %s", err, fmt.Sprint(f.verbs))
	}
}
