package sys

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// begun starts a command that lives until its input is closed, and holds it.
func begun(t *testing.T, argv ...string) *ProcessHandle {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	in, _ := cmd.StdinPipe()
	must.Do(t, cmd.Start())
	held := must.Get(OpenProcess(Process{PID: cmd.Process.Pid}))(t)
	t.Cleanup(func() {
		_, _ = in.Close(), held.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return held
}

// TestHoldProcess: a held process is the one meant, by its start time; one that has ended cannot be
// held, even if its parent has not waited for it and it still has its pid.
func TestHoldProcess(t *testing.T) {
	held := begun(t, "cat")
	if age := held.Age(); age < 0 || age > time.Hour {
		t.Errorf("it was started %s ago", age)
	}
	if !held.Alive() || held.Ending() || held.Start == 0 {
		t.Errorf("a process that lives: alive %v, ending %v, start %d",
			held.Alive(), held.Ending(), held.Start)
	}
	again := must.Get(OpenProcess(held.Process))(t)
	other := held.Process
	other.Start++
	refused(t, other, "started at tick")
	ended := again.Ended()
	expect.NoError(t, held.Signal(unix.SIGKILL))
	expect.NoError(t, held.Wait())
	<-ended
	expect.True(t, !held.Alive() && held.Ending() && held.Signal(unix.SIGKILL) == nil,
		"a process that was killed and waited for is alive, or its signal is an error")
	refused(t, held.Process, "it has ended")
}

func refused(t *testing.T, p Process, why string) {
	t.Helper()
	if _, err := OpenProcess(p); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%+v was held: %v, want %q", p, err, why)
	}
}

// TestHeldClosed: closing a held process ends the waits for it.
func TestHeldClosed(t *testing.T) {
	held := begun(t, "cat")
	ended := held.Ended()
	must.Do(t, held.Close())
	<-ended
	expect.True(t, !held.Alive() && held.Signal(unix.SIGKILL) != nil,
		"a process that nobody holds is alive, or was signalled")
}

// TestProcessOnDisk: the records of sessions and of background runs hold a process in this form.
func TestProcessOnDisk(t *testing.T) {
	const kept = `{"pid":7,"start":8,"boot":"b"}`
	p := Process{PID: 7, Start: 8, Boot: "b"}
	if b, err := json.Marshal(p); err != nil || string(b) != kept {
		t.Errorf("%s, %v", b, err)
	}
}

// TestNamespaces: only those namespaces are opened that differ from the daemon's.
func TestNamespaces(t *testing.T) {
	held := begun(t, "cat")
	if all, err := held.Namespaces(); err != nil || len(all) != 0 {
		t.Errorf("%v, %v, want none: all are shared", all, err)
	}
	needsRoot(t)
	other := begun(t, "unshare", "--net", "--uts", "cat")
	for shared := true; shared; { // until unshare has done it
		var err error
		if shared, err = other.SharesNamespace("uts"); err != nil {
			t.Fatal(err)
		}
	}
	all := must.Get(other.Namespaces())(t)
	var types []string
	for _, n := range all {
		types = append(types, n.Type)
	}
	if err := closeAll(all); err != nil || !slices.Equal(types, []string{"uts", "net"}) {
		t.Errorf("opened %q, %v, want uts and net", types, err)
	}
	expect.NoError(t, other.Signal(unix.SIGKILL))
	expect.NoError(t, other.Wait())
	if all, err := other.Namespaces(); err == nil {
		t.Errorf("the namespaces of a process that has ended: %v", all)
	}
}
