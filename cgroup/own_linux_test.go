package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// TestBoundOwn: the front's cgroup is beside the base, is not a chat's, is there for one front after
// another, and goes with the base, but not while a front is in it.
func TestBoundOwn(t *testing.T) {
	f := open(t)
	for range 2 {
		cmd := exec.Command("sleep", "1000")
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		must(t, f.Bound(Front, cmd.Process.Pid))
		for _, set := range f.ownLimits(Front) {
			pids, err := cgroupfs.Processes(set.dir)
			if err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
				t.Errorf("in %s are %v, %v", set.dir, pids, err)
			}
			for file, want := range set.files {
				got, err := os.ReadFile(filepath.Join(set.dir, file))
				if err != nil || strings.TrimSpace(string(got)) != want {
					t.Errorf("%s is %q, want %s: %v", file, got, want, err)
				}
			}
		}
		if ids, err := f.IDs(); err != nil || len(ids) > 0 {
			t.Errorf("chats are %v, %v", ids, err)
		}
		if err := f.RemoveBase(); !errors.Is(err, chat.ErrBusy) {
			t.Errorf("with a front inside: %v", err)
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	must(t, f.removeOwn())
	for _, set := range f.ownLimits(Front) {
		if _, err := os.Stat(set.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", set.dir, err)
		}
	}
	alone := newUnitsFS(Options{Name: "chatd-test"}, "/sys/fs/cgroup/none")
	alone.crowded = chat.ErrUnsupported
	if err := alone.Bound(Front, os.Getpid()); !errors.Is(err, chat.ErrUnsupported) {
		t.Errorf("where systemd has not given its cgroup away: %v", err)
	}
}
