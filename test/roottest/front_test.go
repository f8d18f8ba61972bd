package roottest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// frontOf is the process that chatd-root keeps for callers.
func frontOf(t testing.TB, root int) int {
	t.Helper()
	var pid int
	comes(func() bool {
		children, err := filepath.Glob("/proc/" + strconv.Itoa(root) + "/task/*/children")
		must(t, err)
		for _, file := range children {
			text, _ := os.ReadFile(file) // a thread may have ended
			for _, child := range strings.Fields(string(text)) {
				if comm, _ := os.ReadFile("/proc/" + child + "/comm"); string(comm) == "chatd-front\n" {
					pid, err = strconv.Atoi(child)
					must(t, err)
				}
			}
		}
		return pid != 0
	})
	if pid == 0 {
		t.Fatal("there is no front")
	}
	return pid
}

// statusOf is a line of /proc/PID/status (proc(5)).
func statusOf(t testing.TB, pid int, key string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, key+":"); found {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	t.Fatalf("no %s in %s", key, text)
	return ""
}

// TestFrontHasNothing: the process that reads callers' text has a user of its own, no group, no
// capability, no way to one, a filter of system calls, and namespaces without a network.
func TestFrontHasNothing(t *testing.T) {
	d := startDaemon(t, options(t), "")
	front := frontOf(t, d.cmd.Process.Pid)
	for key, want := range map[string]string{
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
		"Groups": "", "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if got := statusOf(t, front, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	uids := strings.Fields(statusOf(t, front, "Uid"))
	for _, uid := range uids {
		if n, err := strconv.Atoi(uid); err != nil || n == 0 || n >= int(testUIDs.Low) && n <= int(testUIDs.High) {
			t.Errorf("its uids are %q", uids)
		}
	}
	for _, ns := range []string{"net", "ipc"} {
		its, err := os.Readlink("/proc/" + strconv.Itoa(front) + "/ns/" + ns)
		must(t, err)
		own, err := os.Readlink("/proc/self/ns/" + ns)
		must(t, err)
		if its == own {
			t.Errorf("it shares the %s namespace", ns)
		}
	}
	for _, c := range []string{"/proc/self/root", "/proc/self/exe"} { // what a tracer could read
		if _, err := os.Readlink(strings.Replace(c, "self", strconv.Itoa(front), 1)); err != nil {
			t.Errorf("root cannot look at it: %v", err)
		}
	}
}

// TestFrontComesBack: a front that is killed is started again, and no session, no background run
// and no output is lost.
func TestFrontComesBack(t *testing.T) {
	d := startDaemon(t, options(t), "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "front"})
	must(t, err)
	r, err := d.StartRun(t.Context(), c.ID, chat.RunSpec{Command: "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done"})
	must(t, err)
	for range 2 {
		front := frontOf(t, d.cmd.Process.Pid)
		must(t, unix.Kill(front, unix.SIGKILL))
		if !comes(func() bool { return frontOf(t, d.cmd.Process.Pid) != front }) {
			t.Fatal("no other front comes")
		}
		if got, err := d.Get(t.Context(), c.ID); err != nil || !got.Awake {
			t.Errorf("the chat is %+v, %v", got, err)
		}
	}
	if !comes(func() bool {
		r, err = d.ShowRun(t.Context(), c.ID, r.ID)
		return err == nil && r.State == chat.RunEnded
	}) {
		t.Fatalf("the run is %+v, %v", r, err)
	}
	if r.Result == nil || r.Result.Stdout != "1\n2\n3\n4\n5\n" || r.Result.Exit != 0 {
		t.Errorf("the run ended with %+v", r.Result)
	}
	must(t, d.Reap(t.Context(), c.ID))
}

// TestFrontDiesWithRoot: no front outlives the chatd-root that started it, however that ends.
func TestFrontDiesWithRoot(t *testing.T) {
	d := startDaemon(t, options(t), "")
	front := frontOf(t, d.cmd.Process.Pid)
	must(t, d.cmd.Process.Kill())
	if !comes(func() bool { return unix.Kill(front, 0) != nil }) {
		t.Error("it lives")
	}
}
