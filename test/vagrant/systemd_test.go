//go:build e2e

package vagrant

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const service = "chatd.service"

// unitOf is the unit of a chat's session.
func unitOf(id chat.ID) string { return "chatd-" + string(id) + ".service" }

// properties is systemctl show, for one unit.
func properties(t testing.TB, unit string, names ...string) map[string]string {
	t.Helper()
	out := output(t, "systemctl", "show", "-p", strings.Join(names, ","), "--", unit)
	got := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			got[name] = value
		}
	}
	return got
}

func property(t testing.TB, unit, name string) string {
	t.Helper()
	return properties(t, unit, name)[name]
}

// cgroupOf is where the kernel shows a unit's cgroup.
func cgroupOf(t testing.TB, unit string) string {
	t.Helper()
	path := property(t, unit, "ControlGroup")
	must.True(t, path != "" && path != "/", "%s has no cgroup: %q", unit, path)
	return filepath.Join("/sys/fs/cgroup", path)
}

// content is a file as text, without the newline at its end.
func content(t testing.TB, path ...string) string {
	t.Helper()
	return strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(path...)))(t)))
}

// counter is one number of a file like cpu.stat or memory.events.
func counter(t testing.TB, name string, path ...string) int {
	t.Helper()
	for line := range strings.Lines(content(t, path...)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			return must.Get(strconv.Atoi(value))(t)
		}
	}
	t.Fatalf("%v has no %s", path, name)
	return 0
}

// members are the pids of a cgroup and everything below it.
func members(t testing.TB, dir string) []string {
	t.Helper()
	var pids []string
	must.Do(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // a run's leaf that ended meanwhile
		}
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			pids = append(pids, strings.Fields(string(b))...)
		}
		return nil
	}))
	return pids
}

// commandOf is the name of a process, empty if it is gone.
func commandOf(pid string) string {
	b, _ := os.ReadFile("/proc/" + pid + "/comm")
	return strings.TrimSpace(string(b))
}

// restart restarts chatd as an operator would; with Type=notify it returns when
// the API answers.
func restart(t testing.TB) {
	t.Helper()
	must.Do(t, tryRestart())
}

// tryRestart forgives what tests do and people do not: many restarts in a minute.
func tryRestart() error {
	if _, err := try(timeout, "systemctl", "reset-failed", service); err != nil {
		return err
	}
	_, err := try(timeout, "systemctl", "restart", service)
	return err
}

// session is what must not change while chatd comes and goes.
type session struct {
	invocation, pid, started string
}

func sessionOf(t testing.TB, id chat.ID) session {
	t.Helper()
	p := properties(t, unitOf(id), "InvocationID", "MainPID", "ActiveState", "ActiveEnterTimestampMonotonic")
	must.True(t, p["ActiveState"] == "active" && p["MainPID"] != "0",
		"the session of %s is not there: %v", id, p)
	return session{p["InvocationID"], p["MainPID"], p["ActiveEnterTimestampMonotonic"]}
}

// host is what doctor prints.
func host(t testing.TB) chat.Host {
	t.Helper()
	var h chat.Host
	cli(t, &h, "doctor")
	return h
}

// reconciled waits for what chatd finds or mends by itself: it looks every
// minute.
func reconciled(t testing.TB, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	eventually(t, 100*time.Second, what, ok)
	t.Logf("%s after %v", what, time.Since(begin).Round(time.Second))
}

// noPrivilege wants no capability of a process, no way to one, and a filter of system calls.
func noPrivilege(t *testing.T, pid string) {
	t.Helper()
	status := content(t, "/proc", pid, "status") + "\n"
	for _, want := range []string{"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		expect.True(t, strings.Contains(status, want), "its status lacks %q:\n%s", want, status)
	}
}

// mainPID is chatd's own.
func mainPID(t testing.TB) int {
	t.Helper()
	pid, err := strconv.Atoi(property(t, service, "MainPID"))
	if err == nil && pid == 0 {
		err = fmt.Errorf("cannot find chatd's process: it does not run")
	}
	must.Do(t, err)
	return pid
}
