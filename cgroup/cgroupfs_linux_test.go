package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// generous bounds waits that end much earlier unless something is broken.
const generous = 3 * time.Minute

// open gives a backend of its own, whose base goes with the test.
func open(t testing.TB, without ...chat.LayerName) *FS {
	t.Helper()
	must.Root(t, "cgroups are made and removed")
	f := must.Get(OpenFS(Options{Name: fmt.Sprintf("chatd-test-%d", os.Getpid()), Without: without}))(t)
	t.Cleanup(func() { clean(t, f) })
	return f
}

// clean kills and removes whatever is below the base, then the base. The second
// of two backends finds nothing, which is fine.
func clean(t testing.TB, f *FS) {
	defer f.Close()
	ctx, stop := context.WithTimeout(context.Background(), generous)
	defer stop()
	ids, err := f.IDs()
	expect.NoError(t, err)
	for _, id := range ids {
		expect.NoError(t, f.Kill(ctx, id))
	}
	expect.NoError(t, cgroupfs.Kill(ctx, f.bases.Unified, nil, nil))
	for _, dir := range append(f.legacyBases(), f.bases.Unified) {
		expect.NoError(t, cgroupfs.RemoveTree(dir))
	}
	expect.NoError(t, f.RemoveBase())
}

func limits() chat.Limits {
	l := chat.DefaultLimits()
	l.MemoryMax, l.PidsMax = 48<<20, 40
	return l
}

const (
	idA chat.ID = "00000000000000aa"
	idB chat.ID = "00000000000000bb"
)

// create makes a chat with a session that sleeps.
func create(t testing.TB, f *FS, id chat.ID) *exec.Cmd {
	t.Helper()
	must.Do(t, f.Create(id, limits()))
	return start(t, f, id, "session", "exec sleep 1000")
}

func start(t testing.TB, f *FS, id chat.ID, leaf, script string) *exec.Cmd {
	t.Helper()
	cmd := shell(script)
	must.Do(t, f.Start(id, leaf, cmd))
	t.Cleanup(func() {
		// The whole chat: one process that is out of CPU quota takes a second to die.
		expect.NoError(t, f.Kill(killCtx(t), id))
		cmd.Wait()
	})
	return cmd
}

func shell(script string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func killCtx(t testing.TB) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), generous)
	_ = time.AfterFunc(generous, stop)
	return ctx
}

// alive tells whether the child still runs, without taking its end away.
func alive(cmd *exec.Cmd) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err == nil && !bytes.Contains(b, []byte(") Z ")) && !bytes.Contains(b, []byte(") X "))
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(generous); !ok(); time.Sleep(5 * time.Millisecond) {
		must.True(t, !time.Now().After(end), "waited in vain for %s", what)
	}
}

func paths(t testing.TB, pid int) map[string]string {
	t.Helper()
	b := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)))(t)
	return must.Get(parseOwn(string(b)))(t)
}

func TestLife(t *testing.T) {
	f := open(t)
	t.Logf("mode: %s, bases: %+v", f.Mode(), f.bases)
	session := create(t, f, idA)
	for range 2 { // idempotent, and a live session stays
		must.Do(t, f.Create(idA, limits()))
	}
	must.True(t, alive(session), "a second Create ended the session")
	ids := must.Get(f.IDs())(t)
	must.True(t, slices.Equal(ids, []chat.ID{idA}), "IDs = %v", ids)
	must.Do(t, f.CreateRun(idA, "r1"))
	run := start(t, f, idA, "runs/r1", "exec sleep 1000")
	pids := must.Get(f.Members(idA))(t)
	if !slices.Contains(pids, session.Process.Pid) || !slices.Contains(pids, run.Process.Pid) {
		t.Fatalf("members %v lack %d or %d", pids, session.Process.Pid, run.Process.Pid)
	}
	for name, err := range map[string]error{"Remove": f.Remove(idA), "RemoveRun": f.RemoveRun(idA, "r1")} {
		expect.True(t, errors.Is(err, chat.ErrBusy),
			"%s with somebody inside: %v, want ErrBusy", name, err)
	}
	must.True(t, alive(session) && alive(run), "a refused Remove ended somebody")
	expect.Is(t, f.CreateRun(idA, "r1"), chat.ErrExists, "a second CreateRun")
	for range 2 {
		must.Do(t, f.Kill(killCtx(t), idA))
	}
	for range 2 {
		must.Do(t, f.RemoveRun(idA, "r1"))
		must.Do(t, f.Remove(idA))
	}
	checkGone(t, f, idA)
}

// checkGone looks at the kernel's files, not through the package.
func checkGone(t *testing.T, f *FS, id chat.ID) {
	t.Helper()
	for _, base := range append(f.legacyBases(), f.bases.Unified) {
		_, err := os.Lstat(filepath.Join(base, string(id)))
		expect.True(t, os.IsNotExist(err), "%s is left in %s: %v", id, base, err)
	}
}

func TestNothingThere(t *testing.T) {
	f := open(t)
	for name, err := range map[string]error{
		"Start":     f.Start(idA, "session", shell("true")),
		"StartRun":  f.Start(idA, "runs/x", shell("true")),
		"CreateRun": f.CreateRun(idA, "x"),
		"Limit":     f.Limit(idA, limits()),
		"LimitCPU":  f.LimitCPU(idA, limits()),
		"Members":   second(f.Members(idA)),
		"Usage":     second(f.Usage(idA)),
		"RunUsage":  second(f.RunUsage(idA, "x")),
	} {
		expect.True(t, errors.Is(err, chat.ErrNotFound) && strings.HasPrefix(err.Error(), "cannot "),
			"%s: %v, want cannot … ErrNotFound", name, err)
	}
	must.Do(t, f.Kill(killCtx(t), idA))
	must.Do(t, f.KillRun(killCtx(t), idA, "x"))
	must.Do(t, f.Remove(idA))
	must.Do(t, f.RemoveRun(idA, "x"))
}

func second[T any](_ T, err error) error { return err }

func TestHostileNames(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	for _, id := range []chat.ID{"", ".", "..", "../x", "00000000000000AA", "/etc", "00000000000000a", "aaaaaaaaaaaaaaaa/b"} {
		for name, err := range map[string]error{
			"Create": f.Create(id, limits()), "Remove": f.Remove(id), "Kill": f.Kill(killCtx(t), id), "Members": second(f.Members(id)),
			"Start": f.Start(id, "session", shell("true")), "Usage": second(f.Usage(id)), "Limit": f.Limit(id, limits()),
		} {
			expect.True(t, errors.Is(err, chat.ErrInvalid), "%s(%q): %v, want ErrInvalid", name, id, err)
		}
	}
	for _, run := range []string{"", ".", "..", "a/b", "../x", "memory.max", "tasks", strings.Repeat("a", 65), "a\x00"} {
		for name, err := range map[string]error{
			"CreateRun": f.CreateRun(idA, run), "RemoveRun": f.RemoveRun(idA, run), "KillRun": f.KillRun(killCtx(t), idA, run),
			"Start": f.Start(idA, "runs/"+run, shell("true")), "RunUsage": second(f.RunUsage(idA, run)),
		} {
			expect.True(t, errors.Is(err, chat.ErrInvalid),
				"%s(%q): %v, want ErrInvalid", name, run, err)
		}
	}
	for _, leaf := range []string{"", "runs", "session/x", "../x", "/session"} {
		expect.Is(t, f.Start(idA, leaf, shell("true")), chat.ErrInvalid, "Start(%q)", leaf)
	}
}

func TestForeignDirectories(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	for _, name := range []string{"x", "00000000000000AA", "-rf", "…", "0000000000000000a", "probe-1"} {
		must.Do(t, os.Mkdir(filepath.Join(f.bases.Unified, name), 0o755))
	}
	ids := must.Get(f.IDs())(t)
	must.True(t, slices.Equal(ids, []chat.ID{idA}), "IDs = %q, want only %s", ids, idA)
}

func TestBaseIsClosed(t *testing.T) {
	f := open(t)
	for _, dir := range append(f.legacyBases(), f.bases.Unified) {
		st := must.Get(os.Stat(dir))(t)
		if st.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v: other chats could read it", dir, st.Mode())
		}
	}
}
