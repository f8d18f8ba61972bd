//go:build e2e

package vagrant

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostPids forks past the limit: the kernel refuses and counts, the API tells
// of it, and the chat goes on.
func TestHostPids(t *testing.T) {
	useProfiles(t)
	c := create(t, "small")
	dir := cgroupOf(t, unitOf(c.ID))
	ended := make(chan chat.RunResult, 1)
	go func() {
		r, err := asker.Run(bounded(timeout), c.ID, chat.RunSpec{Argv: []string{"python3", "-c", bomb}})
		expect.NoError(t, err)
		ended <- r
	}()
	eventually(t, timeout, "the API counts refusals", func() bool {
		u := get(t, c.ID).Usage
		return len(ended) > 0 || u != nil && u.PidsRefused > 0
	})
	n, err := strconv.Atoi(content(t, dir, "pids.current"))
	expect.True(t, err == nil && n <= 80 && n >= 20, "%d tasks under a limit of 80", n)
	r := <-ended
	n, err = strconv.Atoi(strings.TrimSpace(r.Stdout))
	expect.True(t, err == nil && n >= 20 && n < 80, "%d forks went through a limit of 80: %+v", n, r)
	// The control: fewer than the limit are no trouble, and the bomb is gone.
	expect.Equal(t, said(t, c.ID, "i=0; while [ $i -lt 30 ]; do sleep 100 & i=$((i+1)); done; echo all $i"), "all 30",
		"30 forks")
}

// bomb forks up to 200 times and says how often it could; kernels before 6.11
// count refusals where they happened, so it stays a while.
const bomb = `
import os, time
n = 0
try:
    while n < 200:
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n, flush=True)
time.sleep(10)
`

// TestHostMemory: a hog loses its run, not the terminal; a smaller one loses
// nothing.
func TestHostMemory(t *testing.T) {
	useProfiles(t)
	c := create(t, "small")
	before := sessionOf(t, c.ID)
	shells := namesIn(t, c, "bash")
	r := run(t, c.ID, `sleep 300 & python3 -c 'x = b"x" * (100 << 20); print("fits")'`)
	expect.True(t, r.OOMKilled && !strings.Contains(r.Stdout, "fits") && r.Signal == "SIGKILL",
		"a hog of 100 MiB below 64: %+v", r)
	expect.Equal(t, sessionOf(t, c.ID), before, "the session was %+v and", before)
	got := namesIn(t, c, "bash")
	expect.True(t, got == shells && got != "", "the terminal's shell was %q and is %q", shells, got)
	expect.Equal(t, namesIn(t, c, "sleep"), "", "the rest of the run lives")
	expect.Equal(t, said(t, c.ID, `python3 -c 'x = b"x" * (8 << 20); print("fits")'`), "fits", "8 MiB")
	expect.True(t, counter(t, "oom_kill", cgroupOf(t, unitOf(c.ID)), "memory.events") >= 1,
		"memory.events of the unit counts nothing: the hog ended by something else")
}

// namesIn are the pids of the chat's processes of a name.
func namesIn(t testing.TB, c chat.Chat, name string) string {
	t.Helper()
	pids := members(t, cgroupOf(t, unitOf(c.ID)))
	return strings.Join(slices.DeleteFunc(pids, func(pid string) bool { return commandOf(pid) != name }), " ")
}

// TestHostCPU spins in a chat that may have a quarter of one CPU, and as root,
// who may have all of it.
func TestHostCPU(t *testing.T) {
	c := create(t, "")
	dir := cgroupOf(t, unitOf(c.ID))
	const spin = "end=$(($(date +%s)+9)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; done"
	used := counter(t, "usage_usec", dir, "cpu.stat")
	begin := time.Now()
	r := run(t, c.ID, spin)
	share := float64(counter(t, "usage_usec", dir, "cpu.stat")-used) / float64(time.Since(begin).Microseconds())
	if r.Exit != 0 || share > 0.4 {
		t.Errorf("a chat of a quarter CPU took %.2f: %+v", share, r)
	}
	expect.True(t, counter(t, "nr_throttled", dir, "cpu.stat") >= 1, "nobody was throttled")
	out := shell(t, "("+spin+"); times")
	t.Logf("the chat took %.2f of a CPU; root's loop: %s", share, strings.ReplaceAll(out, "\n", " "))
	if strings.Contains(out, "0m0.") && strings.Count(out, "0m0.") == 4 {
		t.Errorf("the same loop costs root nothing, so it shows nothing: %s", out)
	}
}

// TestHostFreeze: an idle chat is frozen below what systemd manages, which takes no notice, and one
// that an operator freezes is frozen for systemd too. Both stay so over a reload of systemd and a
// restart of chatd. What systemctl does by hand, chatd sees, and what it freezes can be stopped.
func TestHostFreeze(t *testing.T) {
	useProfiles(t)
	c := create(t, "freezes")
	dir := cgroupOf(t, unitOf(c.ID))
	is := func(want chat.Frozen, freezer string, still int, path ...string) {
		t.Helper()
		if got := get(t, c.ID); got.Frozen != want || !got.Awake {
			t.Errorf("frozen is %q, want %q, awake %t", got.Frozen, want, got.Awake)
		}
		expect.Equal(t, property(t, unitOf(c.ID), "FreezerState"), freezer, "systemd says")
		events := append(append([]string{dir}, path...), "cgroup.events")
		expect.Equal(t, counter(t, "frozen", events...), still, "the kernel says frozen")
	}
	act := func(do func(context.Context, chat.ID) (chat.Chat, error)) {
		t.Helper()
		must.Get(do(bounded(timeout), c.ID))(t)
	}
	eventually(t, timeout, "the idle chat is frozen", func() bool {
		return get(t, c.ID).Frozen == chat.FrozenUntilUsed
	})
	eventually(t, timeout, "it stands still", func() bool {
		return counter(t, "frozen", dir, "session", "cgroup.events") == 1
	})
	output(t, "systemctl", "daemon-reload")
	restart(t)
	is(chat.FrozenUntilUsed, "running", 1, "session")
	answersInput(t, c.ID, "thawed")

	act(asker.Freeze)
	is(chat.FrozenUntilThawed, "frozen", 1)
	output(t, "systemctl", "daemon-reload")
	restart(t)
	is(chat.FrozenUntilThawed, "frozen", 1)
	act(asker.Thaw)
	is("", "running", 0)

	output(t, "systemctl", "freeze", "--", unitOf(c.ID))
	is(chat.FrozenUntilThawed, "frozen", 1)
	output(t, "systemctl", "thaw", "--", unitOf(c.ID))
	is("", "running", 0)

	act(asker.Freeze)
	if out, err := try(timeout, "systemctl", "stop", "--", unitOf(c.ID)); err != nil { // 257 refuses it
		expect.True(t, strings.Contains(out+err.Error(), "frozen unit"), "stop: %s %v", out, err)
		output(t, "systemctl", "thaw", "--", unitOf(c.ID))
		output(t, "systemctl", "stop", "--", unitOf(c.ID))
	}
	asleepAndWakes(t, c)
	act(asker.Freeze)
	must.Do(t, reap(c.ID))
}

// refusedByQuota is what a program says that met EDQUOT.
const refusedByQuota = "Disk quota exceeded"

// TestHostQuota: on the machine's own ext4, whose quotas chatd turned on, a chat has at most its
// bytes and inodes in home, /tmp and /var/tmp together, by whatever call. Others write on. It is
// reported, and a file removed is room again. A limit that is gone is set again within a minute,
// quotas that an operator turned off are turned on and audited, and reap leaves no record of the
// uid.
func TestHostQuota(t *testing.T) {
	useProfiles(t)
	layers := host(t).Layers
	layer := layers[slices.IndexFunc(layers, func(l chat.Layer) bool { return l.Name == chat.LayerDisk })]
	expect.True(t, layer.State == chat.LayerOn && strings.Contains(layer.Probe, "MiB are reserved for root"),
		"%+v", layer)
	c, other := create(t, "narrow"), create(t, "default")
	for _, command := range []string{
		"head -c 9M /dev/zero >f", "head -c 1M /dev/zero >/tmp/g",
		"head -c 1M /dev/zero >/var/tmp/g",
		// fallocate(2) on amd64: the program is not among the profile's commands.
		"perl -e 'open F, \">h\"; syscall(285, fileno(F), 0, 0, 2**26) == 0 or die $!'",
		"perl -e 'open F, \">u\"; unlink \"u\"; syswrite F, 0 x 2**20 for 1..9; die $!'",
	} {
		if r := run(t, c.ID, command); r.Exit == 0 || !strings.Contains(r.Stderr, refusedByQuota) {
			t.Errorf("%s: %+v", command, r)
		}
	}
	d := get(t, c.ID).Disk
	expect.True(t, d != nil && d.Percent == 100 && d.Bytes <= 8<<20 && d.CountedAt == nil,
		"a full chat has %+v", d)
	eventually(t, timeout, "it is reported", func() bool {
		return strings.Contains(content(t, stateDir, "audit.jsonl"), "(disk_max, inodes_max): 100 %")
	})
	r := run(t, other.ID, "head -c 9M /dev/zero >f")
	expect.True(t, r.Exit == 0, "another chat: %+v", r)
	r = run(t, c.ID, "rm -f f h u /tmp/g /var/tmp/g && head -c 4M /dev/zero >f")
	expect.True(t, r.Exit == 0, "after rm: %+v", r)
	r = run(t, c.ID, "touch $(seq 200)")
	expect.True(t, strings.Contains(r.Stderr, refusedByQuota), "200 files: %+v", r)
	output(t, "setquota", "-u", fmt.Sprint(c.UID), "0", "0", "0", "0", "/")
	eventually(t, timeout, "the limit is set again", func() bool {
		return strings.Contains(quotaOf(t, c, "/"), " 8192 ")
	})
	before := turnedOn(t)
	output(t, "quotaoff", "-u", "/")
	eventually(t, timeout, "quotas are turned on again, which is audited", func() bool {
		return turnedOn(t) > before
	})
	must.Do(t, reap(c.ID))
	expect.Equal(t, quotaOf(t, c, "/"), "", "after reap the kernel has")
}

// turnedOn is how often chatd has turned on quotas, by its audit log.
func turnedOn(t *testing.T) int {
	t.Helper()
	return strings.Count(content(t, stateDir, "audit.jsonl"), "turned on user quotas in ")
}

// quotaOf is the line of a chat's uid in what repquota(8) lists.
func quotaOf(t *testing.T, c chat.Chat, mount string) string {
	t.Helper()
	for line := range strings.Lines(output(t, "repquota", "-u", "-n", mount)) {
		if strings.HasPrefix(line, fmt.Sprintf("#%d ", c.UID)) {
			return line
		}
	}
	return ""
}

// TestHostQuotaOfHomes: homes on a file system of their own, XFS with usrquota, and then ext4 that
// only counts until chatd turns it on: the home and /tmp have a quota each.
func TestHostQuotaOfHomes(t *testing.T) {
	useProfiles(t)
	for _, kind := range []struct{ name, mkfs, options string }{
		{"xfs", "mkfs.xfs -q", "loop,usrquota"},
		{"ext4", "mkfs.ext4 -q -O quota -E quotatype=usrquota", "loop"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "disk")
			shell(t, "truncate -s 512M "+disk+" && "+kind.mkfs+" "+disk)
			otherHomes(t, "-o", kind.options, disk)
			c := create(t, "narrow")
			for _, file := range []string{"f", "/tmp/f"} {
				r := run(t, c.ID, "head -c 9M /dev/zero >"+file)
				expect.True(t, strings.Contains(r.Stderr, refusedByQuota), "%s: %+v", file, r)
			}
			d := get(t, c.ID).Disk
			expect.True(t, d != nil && d.Percent == 100 && d.Bytes >= 12<<20, "full on both: %+v", d)
			must.Do(t, reap(c.ID))
			expect.Equal(t, quotaOf(t, c, homesDir), "", "after reap the kernel has")
			if kind.name == "xfs" {
				snapshots(t)
			}
		})
	}
}
