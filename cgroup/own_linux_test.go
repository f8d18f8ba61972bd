package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestBoundOwn: the front's cgroup is beside the base, is not a chat's, is there for one front after
// another, and goes with the base, but not while a front is in it.
func TestBoundOwn(t *testing.T) {
	f := open(t)
	for range 2 {
		cmd := exec.Command("sleep", "1000")
		must.Do(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		must.Do(t, f.Bound(Front, cmd.Process.Pid))
		for _, set := range f.ownLimits(Front) {
			pids, err := cgroupfs.Processes(set.dir)
			expect.True(t, err == nil && slices.Equal(pids, []int{cmd.Process.Pid}),
				"in %s are %v, %v", set.dir, pids, err)
			for file, want := range set.files {
				got, err := os.ReadFile(filepath.Join(set.dir, file))
				expect.True(t, err == nil && strings.TrimSpace(string(got)) == want,
					"%s is %q, want %s: %v", file, got, want, err)
			}
		}
		if ids, err := f.IDs(); err != nil || len(ids) > 0 {
			t.Errorf("chats are %v, %v", ids, err)
		}
		expect.Is(t, f.RemoveBase(), chat.ErrBusy, "with a front inside")
		must.Do(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	must.Do(t, f.removeOwn())
	for _, set := range f.ownLimits(Front) {
		expect.Is(t, expect.Err(os.Stat(set.dir)), os.ErrNotExist, "%s is left", set.dir)
	}
	alone := newUnitsFS(Options{Name: "chatd-test"}, "/sys/fs/cgroup/none")
	alone.crowded = chat.ErrUnsupported
	expect.Is(t, alone.Bound(Front, os.Getpid()), chat.ErrUnsupported,
		"where systemd has not given its cgroup away")
}
