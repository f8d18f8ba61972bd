package cgroup

import (
	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFurtherController: under cgroup v1 a chat has a cgroup of a further controller only if it is
// made; then whoever is alive is in it, whoever is born later too, and Remove takes it away.
func TestFurtherController(t *testing.T) {
	f := open(t)
	if f.legacy == nil || f.bases.Legacy["blkio"] == "" {
		t.Log("only cgroup v1 with blkio has one")
		return
	}
	session := create(t, f, idA)
	dir := f.legacy.dir("blkio", idA, "")
	must.True(t, !f.legacy.has("blkio", idA), "a chat without a bound on block I/O has a cgroup for it")
	must.Do(t, f.joinFurther("blkio", idA))
	must.Do(t, f.CreateRun(idA, "later"))
	later := start(t, f, idA, "runs/later", "sleep 1000 & exec sleep 1000")
	await(t, "its child", func() bool {
		pids, err := cgroupfs.Members(f.dir(idA))
		return err == nil && len(pids) == 3
	})
	all, err := cgroupfs.Members(f.dir(idA))
	must.Do(t, err)
	var inside []int
	await(t, "nobody else inside", func() bool { // the thread that started it may still be ending
		inside, err = cgroupfs.Processes(dir)
		must.Do(t, err)
		return !slices.Contains(inside, os.Getpid())
	})
	slices.Sort(all)
	slices.Sort(inside)
	expect.True(t, slices.Equal(all, inside) && slices.Contains(inside, session.Process.Pid),
		"inside are %v of %v", inside, all)
	must.Do(t, f.TakeOut(t.Context(), later.Process.Pid))
	if inside, err = cgroupfs.Processes(dir); err != nil || slices.Contains(inside, later.Process.Pid) {
		t.Errorf("%d was taken out; inside are %v, %v", later.Process.Pid, inside, err)
	}
	must.Do(t, later.Process.Kill())
	must.Do(t, f.Kill(killCtx(t), idA))
	must.Do(t, f.Remove(idA))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", filepath.Base(dir), err)
	}
}
