package roottest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// groupOf is the chat's directory in the cgroup2 tree.
func groupOf(t *testing.T, id chat.ID) string {
	t.Helper()
	var found string
	must.Do(t, filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if _, ferr := os.Stat(filepath.Join(path, "cgroup.freeze")); err == nil && ferr == nil && strings.Contains(d.Name(), string(id)) {
			found = path
			return fs.SkipAll
		}
		return nil
	}))
	must.True(t, found != "", "chat %s has no cgroup", id)
	return found
}

// freeze stops every process of a chat by cgroup.freeze, until its end or thaw.
func freeze(t *testing.T, id chat.ID) {
	t.Helper()
	dir := groupOf(t, id)
	must.Do(t, os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0o644))
	until(t, "the chat is frozen", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		return strings.Contains(string(b), "frozen 1")
	})
}

// calls are what a bridge does with a chat.
func calls(m *manager, id chat.ID) map[string]func(context.Context) error {
	text := "text"
	return map[string]func(context.Context) error{
		"run": func(ctx context.Context) error {
			return second(m.Run(ctx, id, chat.RunSpec{Command: "true", Timeout: chat.Duration(5 * time.Second)}))
		},
		"background": func(ctx context.Context) error { return second(m.StartRun(ctx, id, chat.RunSpec{Command: "true"})) },
		"write": func(ctx context.Context) error {
			return second(m.WriteFile(ctx, id, filewire.WriteFile{Path: "f", Content: &text}, nil))
		},
		"list": func(ctx context.Context) error {
			return second(m.ListDir(ctx, id, filewire.ListDir{}, func(filewire.Answer) io.Writer { return &bytes.Buffer{} }))
		},
		"screen": func(ctx context.Context) error { return second(m.Screen(ctx, id)) },
		"input":  func(ctx context.Context) error { return m.Input(ctx, id, chat.Input{Enter: true}) },
	}
}

// looks are what must answer whatever a chat does.
func looks(m *manager, id chat.ID) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"get":  func(ctx context.Context) error { return second(m.Get(ctx, id)) },
		"ls":   func(ctx context.Context) error { return second(m.List(ctx, chat.Filter{})) },
		"runs": func(ctx context.Context) error { return second(m.Runs(ctx, id)) },
		"ps":   func(ctx context.Context) error { return second(m.Processes(ctx, id)) },
		"log":  func(ctx context.Context) error { return second(m.Log(ctx, id, -1)) },
		"the minute's look": func(ctx context.Context) error {
			m.Reconcile(ctx)
			return nil
		},
	}
}

// answers makes each call, and fails where one does not come back at all.
func answers(t *testing.T, of string, all map[string]func(context.Context) error, check func(error) bool) {
	t.Helper()
	for name, call := range all {
		done := make(chan error, 1)
		go func() { done <- call(operator(t.Context())) }()
		select {
		case err := <-done:
			expect.True(t, check(err), "%s of %s: %v", name, of, err)
		case <-time.After(longEnough):
			t.Fatalf("%s of %s: no answer", name, of)
		}
	}
}

func fine(err error) bool { return err == nil }

// TestFrozenChat: a chat whose processes are all frozen does not delay others. Its own calls end
// with an error that says so; it can be put to sleep and reaped.
func TestFrozenChat(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	a, b := create(t, m, "frozen", "default"), create(t, m, "beside it", "default")
	begun, ended := make(chan string, 1), make(chan chat.RunResult, 1)
	go func() {
		r, err := m.Run(ctx, a.ID, chat.RunSpec{Command: "sleep 600", Timeout: chat.Duration(3 * time.Second), Started: func(run string) { begun <- run }})
		expect.NoError(t, err)
		ended <- r
	}()
	<-begun
	freeze(t, a.ID)
	busy := func(err error) bool { return errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "frozen") }
	answers(t, "the frozen chat", calls(m, a.ID), busy)
	answers(t, "the frozen chat", looks(m, a.ID), fine)
	answers(t, "the chat beside it", calls(m, b.ID), fine)
	if r := <-ended; r.EndedBy != chat.EndedByTimeout {
		t.Errorf("a run that was frozen: %+v", r)
	}
	must.Get(m.Sleep(ctx, a.ID))(t)
	answers(t, "the chat that slept", calls(m, a.ID), func(err error) bool {
		return err == nil || errors.Is(err, chat.ErrWrongPhase) // its screen, if that was first
	})
	freeze(t, a.ID)
	must.Do(t, m.Reap(ctx, a.ID))
}

// TestUnkillableChat: processes of a run do not end when they are killed, as those of a chat that
// owes the kernel time. The caller has its answer, with what was printed, and others have theirs.
// A freezer of cgroup v1 makes such processes.
func TestUnkillableChat(t *testing.T) {
	const freezer = "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(freezer); err != nil {
		t.Log("NOT TRIED: no cgroup v1 freezer here, and nothing else stops a process from being killed")
		return
	}
	m := open(t, options(t))
	ctx := operator(t.Context())
	a, b := create(t, m, "unkillable", "default"), create(t, m, "beside it", "default")
	begun, ended := make(chan string, 1), make(chan chat.RunResult, 1)
	go func() {
		r, err := m.Run(ctx, a.ID, chat.RunSpec{
			Command: "echo begun; sleep 600", Timeout: chat.Duration(10 * time.Second),
			Started: func(run string) { begun <- run },
		})
		expect.NoError(t, err)
		ended <- r
	}()
	leaf := filepath.Join(groupOf(t, a.ID), "runs", <-begun)
	var inside []string
	until(t, "its command is there", func() bool {
		b, _ := os.ReadFile(filepath.Join(leaf, "cgroup.procs"))
		inside = strings.Fields(string(b))
		return len(inside) >= 3 // nsenter, sh and sleep
	})
	cold := must.Get(os.MkdirTemp(freezer, "chatd-test-"))(t)
	thaw := func() {
		must.Do(t, os.WriteFile(filepath.Join(cold, "freezer.state"), []byte("THAWED"), 0o644))
		until(t, "the freezer is empty", func() bool { return errors.Is(unix.Rmdir(cold), unix.ENOENT) || !exists(cold)() })
	}
	defer func() {
		if exists(cold)() {
			thaw()
		}
	}()
	for _, pid := range inside {
		must.Do(t, os.WriteFile(filepath.Join(cold, "cgroup.procs"), []byte(pid), 0o644))
	}
	must.Do(t, os.WriteFile(filepath.Join(cold, "freezer.state"), []byte("FROZEN"), 0o644))
	select {
	case r := <-ended:
		expect.True(t, r.EndedBy == chat.EndedByTimeout && r.Stdout == "begun\n",
			"a run that cannot be killed: %+v", r)
	case <-time.After(longEnough):
		t.Fatal("a run that cannot be killed: no answer")
	}
	answers(t, "the chat", calls(m, a.ID), fine)
	slept := make(chan error, 1)
	go func() { slept <- second(m.Sleep(ctx, a.ID)) }()
	answers(t, "the chat beside it", calls(m, b.ID), fine)
	answers(t, "a chat that cannot sleep", looks(m, a.ID), fine)
	thaw()
	if err := <-slept; err != nil && !errors.Is(err, chat.ErrBusy) {
		t.Error(err)
	}
	until(t, "its leaf is gone", func() bool { return !exists(leaf)() })
}
