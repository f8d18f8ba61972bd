package roottest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackProcesses: chat A tries to see, signal, trace and measure the
// processes of B.
func TestAttackProcesses(t *testing.T) {
	m := open(t, attackOptions(t))
	a, b := inmateOf(t, m, "process a", "default"), inmateOf(t, m, "process b", "default")
	const word = "31415.92653"
	for _, i := range []inmate{a, b} {
		i.background(t, "serving", "serve-unix", i.in("s-"+word+i.User), i.in("serving"))
	}
	pid, own := fmt.Sprint(b.pidOf(t, "tmux: server")), a.sh(t, "pgrep -x 'tmux: server'")
	// A pid that B has on the host may be one that A has inside.
	const gone = "ESRCH EPERM EINVAL"
	for _, c := range []struct {
		name      string
		do        []string
		want      string
		host, own []string
	}{
		{"see B's command lines", []string{"seek", word + b.User}, "ESRCH", []string{"seek", word + b.User}, []string{"seek", word + a.User}},
		{"signal 0", []string{"kill", pid, "0"}, gone, []string{"kill", pid, "0"}, []string{"kill", own, "0"}},
		{"SIGKILL", []string{"kill", pid, "9"}, gone, nil, []string{"child-then", "kill", "9"}},
		{"pidfd_open", []string{"pidfd", pid}, gone, []string{"pidfd", pid}, []string{"pidfd", own}},
		{"ptrace", []string{"ptrace", pid}, gone, []string{"ptrace", pid}, []string{"child-then", "ptrace"}},
		{"read memory", []string{"memory-of", pid}, gone, []string{"memory-of", pid}, []string{"child-then", "memory-of"}},
		{"open memory", []string{"read", "/proc/" + pid + "/mem"}, "ENOENT", []string{"stat", "/proc/" + pid + "/mem"}, []string{"stat", "/proc/" + own + "/mem"}},
		{"read limits", []string{"limits-of", pid}, gone, nil, []string{"child-then", "limits-of"}},
		{"priority of B's uid", []string{"priority-of-uid", fmt.Sprint(b.UID)}, gone, []string{"priority-of-uid", fmt.Sprint(b.UID)}, []string{"priority-of-uid", fmt.Sprint(a.UID)}},
		{"CPUs of a process", []string{"cpus-of", pid}, gone, []string{"cpus-of", pid}, []string{"child-then", "cpus-of"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			outcomes(t, "A", a.try(t, c.do...), c.want)
			if c.host != nil {
				outcomes(t, "control: root on the host", asHost(t, c.host...), "ok")
			}
			outcomes(t, "control: A to itself", a.try(t, c.own...), "ok")
		})
	}
	t.Run("kill everybody", func(t *testing.T) {
		before := a.pidOf(t, "tmux: server")
		r := run(t, m, a.ID, "kill -9 -1")
		if !comes(func() bool { return !alive(before) }) { // the kernel takes its time on a busy host
			t.Errorf("control: A could not end its own processes: %+v", r)
		}
		expect.True(t, alive(number(pid)), "B's terminal is gone")
	})
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	s, err := statusField(pid, "State")
	return err == nil && !strings.HasPrefix(s, "Z")
}

// TestAttackAmbush: the session of A lies in wait for the commands that chatd
// sends into it, to take one over before it is confined.
func TestAttackAmbush(t *testing.T) {
	m := open(t, attackOptions(t))
	a := inmateOf(t, m, "ambush", "default")
	got := lieInWait(t, a, 40)
	var met int
	expect.True(t, expect.Err(fmt.Sscanf(got, "met %d, took over none", &met)) == nil && met != 0,
		"got %q, want some met and none taken over", got)
	t.Log(got)
}

// lieInWait has the session's own shell start the ambush, has n commands run
// past it, and returns what it says.
func lieInWait(t *testing.T, a inmate, n int) string {
	t.Helper()
	a.typeLine(t, a.program+" ambush ~/stop >~/ambush.new; mv ~/ambush.new ~/ambush; echo")
	until(t, "the ambush", exists(a.in("stop.waits")))
	met := exists(a.in("stop.met"))
	for i, end := 0, time.Now().Add(longEnough); i < n || !met() && time.Now().Before(end); i++ {
		run(t, a.m, a.ID, ":")
	}
	must.Do(t, os.WriteFile(a.in("stop"), nil, 0o644))
	must.Do(t, awaitFile(a.in("ambush")))
	b := must.Get(os.ReadFile(a.in("ambush")))(t)
	return strings.TrimSpace(string(b))
}

// TestAttackIPC: chat A tries to get at the objects of B that have a key or a
// name and no file that a mode could guard, and at servers of B by name.
func TestAttackIPC(t *testing.T) {
	m := open(t, attackOptions(t))
	for _, profile := range []string{"default", "web"} {
		t.Run(profile, func(t *testing.T) {
			a, b := inmateOf(t, m, "ipc a "+profile, profile), inmateOf(t, m, "ipc b "+profile, profile)
			ipcCases(t, a, b, profile)
		})
	}
}

func ipcCases(t *testing.T, a, b inmate, profile string) {
	name := "chatd-attack-" + profile
	for _, args := range [][]string{{"shm", "0xc4a7d", "make"}, {"sem", "0xc4a7d", "make"}, {"msg", "0xc4a7d", "make"}} {
		outcomes(t, "B makes "+args[0], b.try(t, args...), "ok")
	}
	b.background(t, "ready", "serve-abstract", name, b.in("ready"))
	for _, c := range []struct {
		name, want string
		do         []string
	}{
		{"System V shared memory", "ENOENT", []string{"shm", "0xc4a7d"}},
		{"System V semaphore", "ENOENT", []string{"sem", "0xc4a7d"}},
		{"System V message queue", "ENOENT", []string{"msg", "0xc4a7d"}},
		{"abstract socket", "ECONNREFUSED", []string{"dial-abstract", name}},
	} {
		t.Run(c.name, func(t *testing.T) {
			outcomes(t, "A", a.try(t, c.do...), c.want)
			outcomes(t, "control: B", b.try(t, c.do...), "ok")
		})
	}
	t.Run("POSIX message queue", func(t *testing.T) {
		// Landlock knows no rule for the file system of queues, so a chat has none at all.
		outcomes(t, "A", a.try(t, "mq", name, "make"), "EACCES")
		outcomes(t, "control: the same uid on the host", asUser(t, a.UID, "mq", name, "make", "unlink"), "ok")
	})
}
