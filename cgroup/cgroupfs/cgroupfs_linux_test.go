package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestFlat(t *testing.T) {
	text := "low 0\noom_kill 12\noom_kill_x 3\nbad x\nmax max\n"
	for key, want := range map[string]uint64{
		"oom_kill": 12, "none": 0, "low": 0, "max": 1<<64 - 1,
	} {
		got, err := flat(text, key)
		expect.True(t, got == want && err == nil, "%s = %d, %v, want %d", key, got, err, want)
	}
	expect.True(t, expect.Err(flat(text, "bad")) != nil, "a word was read as a number")
}

// tree is a directory that looks like a cgroup with one below it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// TestFiles: what is read and written is there already, and what is not says so in the word that
// callers branch on.
func TestFiles(t *testing.T) {
	dir := tree(t, map[string]string{
		"pids.max": "max\n", "cgroup.events": "populated 1\nfrozen 0\n",
	})
	expect.Equal(t, must.Get(ReadNumber(dir, "pids.max"))(t), 1<<64-1, "pids.max")
	full, err := Populated(dir)
	expect.True(t, err == nil && full, "populated: %v, %v", full, err)
	expect.NoError(t, Write(dir, "pids.max", "20\n"))
	expect.Equal(t, must.Get(ReadNumber(dir, "pids.max"))(t), 20, "written")
	_, readErr := ReadFlat(dir, "none", "key")
	_, pidsErr := Processes(dir)
	for name, err := range map[string]error{
		"read": readErr, "processes": pidsErr, "write": Write(dir, "none", "1"),
	} {
		expect.True(t, errors.Is(err, chat.ErrNotFound), "%s: %v, want not found", name, err)
	}
	expect.NoError(t, WriteIfThere(dir, "none", "1"))
	expect.Is(t, expect.Err(os.Stat(filepath.Join(dir, "none"))), os.ErrNotExist, "a file was made")
}

// TestMembers: the processes of a cgroup are its own and those of all below it.
func TestMembers(t *testing.T) {
	dir := tree(t, map[string]string{
		"cgroup.procs": "1\n2\n", "a/cgroup.procs": "", "a/b/cgroup.procs": "3\n",
	})
	pids, err := Members(dir)
	expect.True(t, err == nil && slices.Equal(pids, []int{1, 2, 3}), "members: %v, %v", pids, err)
	pids, err = Processes(dir)
	expect.True(t, err == nil && slices.Equal(pids, []int{1, 2}), "its own: %v, %v", pids, err)
	bad := tree(t, map[string]string{"cgroup.procs": "1\nx\n"})
	pids, err = Members(bad)
	expect.True(t, err != nil, "a word is a process: %v", pids)
}

// TestDirectories: a tree is made and removed again and again, and nothing but directories is.
func TestDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	for range 2 {
		for _, d := range []string{dir, filepath.Join(dir, "b"), filepath.Join(dir, "b", "c")} {
			must.Do(t, errors.Join(Make(d), Make(d)))
		}
		must.Do(t, errors.Join(RemoveTree(dir), RemoveTree(dir), Remove(dir)))
	}
	full := tree(t, map[string]string{"file": ""})
	expect.True(t, Remove(full) != nil, "a directory with a file was removed")
}

// TestKillWithoutTree: there being nothing to kill is not an error.
func TestKillWithoutTree(t *testing.T) {
	expect.NoError(t, Kill(t.Context(), filepath.Join(t.TempDir(), "none"), nil, nil))
}
