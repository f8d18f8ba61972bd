//go:build e2e

package vagrant

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostUnit reads what PID 1 says of an awake chat, for two profiles, so that
// the figures are the profile's and not a constant.
func TestHostUnit(t *testing.T) {
	useProfiles(t)
	for profile, want := range map[string]map[string]string{
		"default": {"MemoryMax": "268435456", "TasksMax": "200", "CPUQuotaPerSecUSec": "250ms"},
		"small":   {"MemoryMax": "67108864", "TasksMax": "80", "CPUQuotaPerSecUSec": "500ms"},
	} {
		c := create(t, profile)
		maps.Copy(want, map[string]string{
			"Slice": slice, "User": fmt.Sprint(c.UID), "Type": "notify", "Delegate": "yes", "NoNewPrivileges": "yes",
			"KillMode": "control-group", "OOMPolicy": "continue", "CollectMode": "inactive-or-failed",
			"MemorySwapMax": "0", "ActiveState": "active", "SubState": "running", "PAMName": "chatd",
			"UMask": "0077", "KeyringMode": "private", "PrivateTmp": "no", "Transient": "yes",
		})
		got := properties(t, unitOf(c.ID), slices.Collect(maps.Keys(want))...)
		for name, value := range want {
			expect.Equal(t, got[name], value, "profile %s: %s=", profile, name)
		}
	}
}

// TestHostServiceUnit: chatd itself is not among the chats, and what it needs is
// ordered before it.
func TestHostServiceUnit(t *testing.T) {
	got := properties(t, service, "Slice", "Type", "WatchdogUSec", "NoNewPrivileges", "ProtectSystem", "Requires", "After", "CapabilityBoundingSet")
	for name, want := range map[string]string{"Slice": "system.slice", "Type": "notify", "NoNewPrivileges": "yes", "ProtectSystem": "strict"} {
		expect.Equal(t, got[name], want, "%s=", name)
	}
	expect.True(t, got["WatchdogUSec"] != "0" && got["WatchdogUSec"] != "infinity", "no watchdog")
	for _, name := range []string{"Requires", "After"} {
		if !slices.Contains(strings.Fields(got[name]), "chatd-wall.service") {
			t.Errorf("%s=%s lacks chatd-wall.service", name, got[name])
		}
	}
	if n := len(strings.Fields(got["CapabilityBoundingSet"])); n == 0 || n > 13 {
		t.Errorf("%d capabilities: %s", n, got["CapabilityBoundingSet"])
	}
	h := host(t)
	expect.True(t, strings.Contains(h.Backend, "systemd"), "backend %q, want systemd", h.Backend)
}

// TestHostCgroup reads the limits where the kernel keeps them, also after
// systemd has read all units again, and the leaf of a run while one is under way.
func TestHostCgroup(t *testing.T) {
	useProfiles(t)
	c := create(t, "small")
	dir := cgroupOf(t, unitOf(c.ID))
	want := filepath.Join("/sys/fs/cgroup", slice, unitOf(c.ID))
	must.True(t, dir == want, "the cgroup is %s, want %s", dir, want)
	check := func(when string) {
		for file, want := range map[string]string{
			"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "80", "cpu.max": "500000 1000000",
			"memory.oom.group": "0", "session/memory.oom.group": "0", "cgroup.procs": "",
		} {
			expect.Equal(t, content(t, dir, file), want, "%s: %s", when, file)
		}
		expect.True(t, content(t, dir, "session/cgroup.procs") != "", "%s: nobody is in session/", when)
	}
	check("at first")
	output(t, "systemctl", "daemon-reload")
	check("after daemon-reload")
	t.Run("run", func(t *testing.T) { checkRunLeaf(t, c, dir) })
}

// checkRunLeaf looks at the cgroup of a run while it sleeps, and for it afterwards.
func checkRunLeaf(t *testing.T, c chat.Chat, dir string) {
	done := make(chan string, 1)
	go func() {
		r, err := asker.Run(bounded(timeout), c.ID, chat.RunSpec{Command: "sleep 12 & sleep 12; echo slept"})
		done <- fmt.Sprint(r.Stdout, r.Stderr, text(err))
	}()
	var leaf string
	eventually(t, timeout, "the run has a leaf with two sleeps", func() bool {
		if len(done) > 0 {
			t.Fatalf("the run ended: %s", <-done)
		}
		leaves, _ := filepath.Glob(dir + "/runs/*/cgroup.procs")
		if len(leaves) != 1 {
			return false
		}
		leaf = filepath.Dir(leaves[0])
		return len(slices.DeleteFunc(members(t, leaf), func(pid string) bool { return commandOf(pid) != "sleep" })) == 2
	})
	expect.Equal(t, content(t, leaf, "memory.oom.group"), "1", "memory.oom.group of the run")
	expect.Equal(t, <-done, "slept\n", "the run")
	_, err := os.Stat(leaf)
	expect.True(t, os.IsNotExist(err), "the leaf %s is still there: %v", leaf, err)
}

// TestHostStatus: an operator sees whose session it is and what runs in it.
func TestHostStatus(t *testing.T) {
	c := create(t, "")
	out := output(t, "systemctl", "status", "--no-pager", "-n", "0", "--", unitOf(c.ID))
	for _, want := range []string{"active (running)", "bwrap", "tmux", "bash", "session", slice} {
		expect.True(t, strings.Contains(out, want), "systemctl status lacks %q:\n%s", want, out)
	}
	about := property(t, unitOf(c.ID), "Description")
	if !strings.Contains(about, string(c.ID)) && !strings.Contains(about, c.User) || about == unitOf(c.ID) {
		t.Errorf("the description is %q: it does not say what the unit is", about)
	}
	expect.True(t, !strings.Contains(about, c.ExternalID),
		"the description %q tells everybody the external id", about)
}

// TestHostJournal finds what PID 1 and the session said of a chat by its unit,
// whose name is the chat's id, and nothing of another's.
func TestHostJournal(t *testing.T) {
	a, b := create(t, ""), create(t, "")
	for _, c := range []chat.Chat{a, b} {
		from := map[string]bool{}
		eventually(t, timeout, "lines of "+string(c.ID), func() bool {
			out := output(t, "journalctl", "-q", "--no-pager", "-b", "-o", "json", "-u", unitOf(c.ID))
			for line := range strings.Lines(out) {
				var l map[string]any
				must.Do(t, json.Unmarshal([]byte(line), &l))
				from[fmt.Sprint(l["SYSLOG_IDENTIFIER"])] = true
				if l["UNIT"] != unitOf(c.ID) && l["_SYSTEMD_UNIT"] != unitOf(c.ID) {
					t.Errorf("a line of another unit: %v", l)
				}
			}
			return from["systemd"] && from["chatd-session"]
		})
	}
	// Not all zeros: that one is the probe's, and has lines.
	out, _ := try(timeout, "journalctl", "-q", "-b", "-o", "cat", "-u", unitOf("ffffffffffffffff"))
	expect.True(t, strings.TrimSpace(out) == "", "a chat that is not there has lines: %s", out)
}

// TestHostProcesses: every process of the unit is the chat's, in a leaf, and
// the helper that systemd's PAM leaves outside bubblewrap is gone.
func TestHostProcesses(t *testing.T) {
	c := create(t, "")
	dir := cgroupOf(t, unitOf(c.ID))
	pids := members(t, dir)
	must.True(t, len(pids) >= 3, "only %d processes: want bwrap, tmux and a shell", len(pids))
	expect.True(t, slices.Contains(pids, sessionOf(t, c.ID).pid),
		"the main process is not in the unit's cgroup")
	expect.Equal(t, content(t, dir, "cgroup.procs"), "", "in the unit's own cgroup")
	for _, pid := range pids {
		status := content(t, "/proc", pid, "status")
		if !strings.Contains(status, fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d", c.UID, c.UID, c.UID, c.UID)) {
			t.Errorf("process %s is not all the chat's:\n%s", pid, status)
		}
		expect.True(t, !strings.Contains(content(t, "/proc", pid, "cmdline"), "sd-pam") && !strings.Contains(commandOf(pid), "sd-pam"),
			"process %s is still (sd-pam)", pid)
	}
	eventually(t, timeout, "all processes of the uid are in the unit", func() bool { return len(members(t, dir)) == len(pidsOf(t, c.UID)) })
}

// pidsOf are the processes of a uid, wherever they are.
func pidsOf(t testing.TB, uid uint32) []string {
	t.Helper()
	out, _ := try(timeout, "pgrep", "-U", fmt.Sprint(uid))
	return strings.Fields(out)
}
