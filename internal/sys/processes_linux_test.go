package sys

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// TestPidsOf finds a process of a uid while it lives and while it is a zombie. Of a uid that has
// none it reads nothing: a reap asks, and a host has thousands of processes.
func TestPidsOf(t *testing.T) {
	needsRoot(t)
	const uid = 4000000007
	pidsOf := func() (living, dead []int) {
		t.Helper()
		living, dead, err := PidsOf(uid)
		must.Do(t, err)
		return living, dead
	}
	if allocs := testing.AllocsPerRun(10, func() { pidsOf() }); allocs > 0 {
		t.Errorf("%v allocations for a uid without a process", allocs)
	}
	cmd := exec.Command("/bin/cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	pid := cmd.Process.Pid
	if living, dead := pidsOf(); !slices.Equal(living, []int{pid}) || len(dead) > 0 {
		t.Errorf("living %v, dead %v, want %d alive", living, dead, pid)
	}
	must.Do(t, stdin.Close())
	for !isZombie(pid) { // until it has read its end
	}
	if living, dead := pidsOf(); len(living) > 0 || !slices.Equal(dead, []int{pid}) {
		t.Errorf("living %v, dead %v, want %d as a zombie", living, dead, pid)
	}
	must.Do(t, cmd.Wait())
	if living, dead := pidsOf(); len(living)+len(dead) > 0 {
		t.Errorf("living %v, dead %v of a process that was waited for", living, dead)
	}
}
