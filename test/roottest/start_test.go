package roottest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStartBeforeProbes: before a wall was tried the Manager answers for what is there, and
// nothing new begins.
func TestStartBeforeProbes(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	awake, sleeps, reaped := create(t, m, "awake", "default"), create(t, m, "sleeps", "default"), asleep(t, m, "reaped")
	r := startRun(t, m, awake.ID, chat.RunSpec{Command: "echo on; exec sleep 1000"})
	awaitOutput(t, m, awake.ID, r.ID, "on")
	must.Do(t, m.Close())

	m = must.Get(startManager(t.Context(), opt))(t)
	defer func() { must.Do(t, m.Close()) }()
	ctx := operator(t.Context())
	page, err := m.List(ctx, chat.Filter{})
	expect.True(t, err == nil && len(page.Chats) == 3, "%d chats are listed: %v", len(page.Chats), err)
	got, err := m.Get(ctx, awake.ID)
	expect.True(t, err == nil && got.Awake && len(got.Layers) == len(chat.LayerNames()),
		"%+v, %v", got, err)
	for _, l := range got.Layers {
		expect.True(t, l.State == chat.LayerUnknown && l.Probe == "not tried yet",
			"before any probe layer %s is %+v", l.Name, l)
	}
	if got, err := m.ShowRun(ctx, awake.ID, r.ID); err != nil || got.State != chat.RunRunning {
		t.Errorf("the run is %+v, %v", got, err)
	}
	if got, err := m.Sleep(ctx, sleeps.ID); err != nil || got.Awake {
		t.Errorf("sleep: %+v, %v", got, err)
	}
	must.Do(t, m.Reap(ctx, reaped.ID))
	if h, err := m.Host(ctx); err != nil || len(h.Missing) != 0 {
		t.Errorf("host: %+v, %v", h, err)
	}
	for what, begin := range beginnings(m, awake.ID, sleeps.ID) {
		if err := begin(t); !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "still trying its walls") {
			t.Errorf("%s before the walls were tried: %v", what, err)
		}
	}
	must.Do(t, m.Settle(t.Context()))
	for what, begin := range beginnings(m, awake.ID, sleeps.ID) {
		expect.Is(t, begin(t), nil, "%s after that", what)
	}
	page = must.Get(m.List(ctx, chat.Filter{}))(t)
	for _, c := range page.Chats {
		must.Do(t, m.Reap(ctx, c.ID))
	}
}

// beginnings is everything that begins something behind the walls.
func beginnings(m *manager, awake, sleeps chat.ID) map[string]func(*testing.T) error {
	return map[string]func(*testing.T) error{
		"create": func(t *testing.T) error {
			_, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "another"})
			return err
		},
		"wake": func(t *testing.T) error { _, err := m.Wake(operator(t.Context()), sleeps); return err },
		"run": func(t *testing.T) error {
			_, err := m.Run(operator(t.Context()), awake, chat.RunSpec{Command: "true"})
			return err
		},
		"background run": func(t *testing.T) error {
			_, err := m.StartRun(operator(t.Context()), awake, chat.RunSpec{Command: "true"})
			return err
		},
		"file tool": func(t *testing.T) error {
			content := "f"
			_, err := m.WriteFile(operator(t.Context()), awake, filewire.WriteFile{Path: "f", Content: &content}, nil)
			return err
		},
	}
}

// TestSocketBeforeProbes: while the probe of a session is held the socket answers and the wall
// for packets stands, systemd is not told that chatd is ready, and a create is told to come again.
func TestSocketBeforeProbes(t *testing.T) {
	needsRoot(t)
	a := activate(t)
	dir := filepath.Dir(a.config)
	barrier := filepath.Join(dir, "barrier")
	must.Do(t, os.MkdirAll(dir+"/bin", 0o755))
	must.Do(t, unix.Mkfifo(barrier, 0o600))
	real := must.Get(exec.LookPath("bwrap"))(t)
	// As the chat, which may not open the start barrier: chatd's own end of it is in no child.
	held := fmt.Sprintf("#!/bin/sh\nwhile [ -e %s ]; do sleep 0.05; done\nexec %s \"$@\"\n", barrier, real)
	must.Do(t, os.WriteFile(dir+"/bin/bwrap", []byte(held), 0o755))
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: a.socket + ".notify", Net: "unixgram"})
	must.Do(t, err)
	defer notify.Close()
	d := a.serve(t, "PATH="+dir+"/bin:$PATH NOTIFY_SOCKET="+a.socket+".notify", a.file)
	within, cancel := context.WithTimeout(t.Context(), longEnough) // "systemd" holds the socket
	defer cancel()
	st, err := d.Status(within)
	expect.True(t, err == nil && !st.Ready && len(st.Layers) == len(chat.LayerNames()),
		"%+v, %v", st, err)
	if out, err := exec.Command("iptables", "-S", "OUTPUT").CombinedOutput(); err != nil || !strings.Contains(string(out), "-j CHATD") {
		t.Errorf("OUTPUT is %s, %v", out, err)
	}
	expect.Is(t, expect.Err(d.Create(t.Context(), chat.Spec{ExternalID: "early"})), chat.ErrBusy,
		"create")
	if said := pendingOf(t, notify); strings.Contains(said, "READY=1") {
		t.Errorf("systemd heard %q", said)
	}
	must.Do(t, os.Remove(barrier))
	heard(t, notify, "READY=1")
	if _, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "early"}); err != nil {
		b, _ := os.ReadFile(d.log)
		t.Errorf("create: %v\n%s", err, b)
	}
	page := must.Get(d.List(t.Context(), chat.Filter{}))(t)
	for _, c := range page.Chats {
		must.Do(t, d.Reap(t.Context(), c.ID))
	}
}

// pendingOf is what was said so far.
func pendingOf(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	must.Do(t, c.SetReadDeadline(time.Now()))
	var said strings.Builder
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		if err != nil {
			return said.String()
		}
		said.Write(b[:n])
	}
}

// halfMade admits a chat at that time, and takes no step: the daemon does not run.
func halfMade(t *testing.T, opt provision.Options, at time.Time) state.Record {
	t.Helper()
	store := must.Get(state.Open(state.Options{Dir: opt.State, UIDs: opt.UIDs,
		BlockSize: min(1<<16, max(16, (opt.UIDs.High-opt.UIDs.Low+1)/16)),
		Now:       func() time.Time { return at }}))(t)
	by := chat.CallerFrom(operator(t.Context()))
	rec, _, err := store.Admit(chat.Spec{ExternalID: "half"},
		state.Event{Action: "create", Outcome: "intent", Caller: by})
	must.Do(t, errors.Join(err, store.Close()))
	return rec
}

// TestWakeOfAHalfMadeChat: a chat that a crash left half made is busy until reconcile has completed
// it, and wakes then. No caller is told that it never will.
func TestWakeOfAHalfMadeChat(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	must.Do(t, m.Close())
	rec := halfMade(t, opt, time.Now())
	ctx := operator(t.Context())
	m = must.Get(startManager(t.Context(), opt))(t)
	defer func() { must.Do(t, m.Close()) }()
	_, wakeErr := m.Wake(ctx, rec.ID)
	_, sleepErr := m.Sleep(ctx, rec.ID)
	for what, err := range map[string]error{"wake": wakeErr, "sleep": sleepErr} {
		expect.True(t, errors.Is(err, chat.ErrBusy) && !errors.Is(err, chat.ErrWrongPhase),
			"%s of a half-made chat: %v", what, err)
	}
	must.Do(t, m.Settle(t.Context()))
	if c, err := m.Wake(ctx, rec.ID); err != nil || !c.Awake {
		t.Errorf("after reconcile: %+v, %v", c, err)
	}
	must.Do(t, m.Reap(ctx, rec.ID))
}
