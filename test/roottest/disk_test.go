package roottest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// withDisk has the profile "narrow", whose chats may have 4 MiB and 200 files, and looks often.
func withDisk(opt provision.Options) provision.Options {
	edit(opt, "narrow", func(p *chat.Profile) { p.Limits.DiskLimits = chat.DiskLimits{DiskMax: 4 << 20, InodesMax: 200} })
	opt.DiskEvery = 50 * time.Millisecond
	return opt
}

// enforcesQuotas reports whether the file system of tests' homes does.
func enforcesQuotas() bool {
	return len(diskquota.New("/srv").Unbounded()) == 0
}

// TestDiskIsCounted: where no quota bounds a chat, it is told when its disk fills, in its log and in
// the audit log, and put to sleep when it has twice its limit, also by its /tmp. It wakes, can
// remove files and not write any, and works as before once it has removed enough.
func TestDiskIsCounted(t *testing.T) {
	if enforcesQuotas() {
		t.Skip("this host has quotas; TestHostQuota of test/vagrant shows them")
	}
	opt := withDisk(options(t))
	m := open(t, opt)
	c := create(t, m, "counted", "narrow")
	got := strings.TrimSpace(run(t, m, c.ID, "head -c 3500000 /dev/zero >f; echo $?").Stdout)
	must.True(t, got == "0", "a chat below its limit cannot write: %s", got)
	until(t, "80 % are reported", func() bool { return strings.Contains(auditText(t, opt), "(disk_max, inodes_max): 8") })
	if d := disk(t, m, c); d == nil || d.Bytes < 3_500_000 || d.Inodes == 0 || d.Percent < 80 || d.CountedAt == nil {
		t.Errorf("it has %+v", d)
	}
	expect.True(t, isAwake(t, m, c), "a chat below its limit sleeps")
	run(t, m, c.ID, "head -c 5000000 /dev/zero >/tmp/f")
	until(t, "the chat sleeps", func() bool { return !isAwake(t, m, c) })
	log := must.Get(m.Log(operator(t.Context()), c.ID, -1))(t)
	for _, want := range []string{"files on disk, and may have 4MiB", "put to sleep: it has 2"} {
		if !strings.Contains(string(log.Bytes()), want) {
			t.Errorf("its log lacks %q: %q", want, log.Bytes())
		}
	}
	must.Get(m.Wake(operator(t.Context()), c.ID))(t)
	const write = "head -c 100000 /dev/zero >g; stat -c %s g"
	expect.Equal(t, strings.TrimSpace(run(t, m, c.ID, write).Stdout), "4096",
		"a chat far over its limit wrote a file of … bytes")
	r := run(t, m, c.ID, "rm f g /tmp/f")
	expect.True(t, r.Exit == 0, "it cannot remove files: %+v", r)
	until(t, "it can write", func() bool { return strings.TrimSpace(run(t, m, c.ID, write).Stdout) == "100000" })
	expect.True(t, isAwake(t, m, c), "it was put to sleep again")
}

func disk(t testing.TB, m *manager, c chat.Chat) *chat.DiskUsage {
	t.Helper()
	return must.Get(m.Get(operator(t.Context()), c.ID))(t).Disk
}

// keepMuch leaves 600 files on disk, and is "ok" if the chat may keep them awake.
func keepMuch(t *testing.T, m *manager) string {
	c := create(t, m, "disk", "narrow")
	dir := filepath.Join(c.Home, "many")
	must.Do(t, os.Mkdir(dir, 0o700))
	must.Do(t, os.Chown(dir, int(c.UID), int(c.UID)))
	run(t, m, c.ID, "cd many && touch $(seq 600)")
	if layersNow(t, m)[chat.LayerDisk].State == chat.LayerOff {
		left := must.Get(os.ReadDir(dir))(t)
		return map[bool]string{true: "ok", false: "refused"}[len(left) == 600 && isAwake(t, m, c)]
	}
	until(t, "the quota or the count refuses", func() bool {
		left := must.Get(os.ReadDir(dir))(t)
		return len(left) < 600 || !isAwake(t, m, c)
	})
	return "refused"
}

// TestFileSize: fsize bounds what a run, the terminal and the file tools write to one file; no
// process of the chat raises it. Without it the same goes through.
func TestFileSize(t *testing.T) {
	opt := options(t)
	edit(opt, "bounded", func(p *chat.Profile) { p.Limits.FSize = 1 << 20 })
	m := open(t, opt)
	for profile, want := range map[string]string{"bounded": "153 1048576", "default": "0 3145728"} {
		c := create(t, m, "file size "+profile, profile)
		const fill = "ulimit -f unlimited 2>/dev/null; " +
			"head -c 3M /dev/zero >f; echo $? $(stat -c %s f); rm f"
		r := run(t, m, c.ID, fill)
		expect.True(t, strings.TrimSpace(r.Stdout) == want, "%s: a run: %+v, want %s", profile, r, want)
		in := chat.Input{Text: fill, Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt}}
		got, err := m.InputWait(operator(t.Context()), c.ID, in)
		expect.True(t, err == nil && strings.Contains(got.Text, want),
			"%s: the terminal: %q, %v, want %s", profile, got.Text, err, want)
		write := filewire.WriteFile{Path: "big", Stream: true}
		body := bytes.NewReader(make([]byte, 3<<20))
		_, err = m.WriteFile(operator(t.Context()), c.ID, write, body)
		if profile == "default" {
			must.Do(t, err)
			continue
		}
		expect.Says(t, err, chat.ErrBusy, "file too large", "%s: write_file", profile)
		left, _ := filepath.Glob(filepath.Join(c.Home, "*big*"))
		expect.True(t, len(left) == 0, "%s: write_file left %v", profile, left)
		r = run(t, m, c.ID, "ls -A | grep -c tmp")
		expect.True(t, strings.TrimSpace(r.Stdout) == "0", "%s: write_file left %+v", profile, r)
	}
}

// ioBounds are what the kernel's files of block I/O hold for a chat, by name, as far as they hold
// anything.
func ioBounds(id chat.ID) map[string]string {
	found := map[string]string{}
	for _, dir := range cgroups(string(id)) {
		for _, path := range append(glob(dir+"/io.max"), glob(dir+"/blkio.throttle.*ps_device")...) {
			if said := strings.TrimSpace(text(path)); strings.Contains(filepath.Base(dir), string(id)) && said != "" {
				found[filepath.Base(path)] = said
			}
		}
	}
	return found
}

// TestBlockIO: a profile's bounds on block I/O are in the kernel's files of its chats, and of no
// others, while they are awake: also those of a chat that was awake before the profile had any.
// What the host does not keep is a finding. systemd calls no unit changed on disk.
func TestBlockIO(t *testing.T) {
	opt := options(t)
	bound := func(bps uint64) func(*chat.Profile) {
		return func(p *chat.Profile) { p.Limits.IOReadBPS, p.Limits.IOWriteBPS = bps, bps }
	}
	edit(opt, "later", bound(0))
	edit(opt, "bounded", bound(8<<20))
	m := must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	h := must.Get(m.Host(ctx))(t)
	said := strings.Join(h.Findings, "\n")
	if strings.Contains(said, "no controller of block I/O") {
		must.Do(t, m.Close())
		t.Logf("this host cannot bound block I/O, and says so: %s", said)
		return
	}
	if strings.Contains(said, "profile default: limits.io_") || strings.Contains(said, "profile later: limits.io_") {
		t.Errorf("findings on profiles without a bound: %s", said)
	}
	c, plain, old := create(t, m, "bounded", "bounded"), create(t, m, "plain", "default"), create(t, m, "old", "later")
	check := func(when string, id chat.ID, want bool) {
		t.Helper()
		found := ioBounds(id)
		v2 := strings.Contains(found["io.max"], " rbps=8388608 wbps=8388608 riops=max wiops=max")
		v1 := strings.HasSuffix(found["blkio.throttle.read_bps_device"], " 8388608") &&
			strings.HasSuffix(found["blkio.throttle.write_bps_device"], " 8388608")
		if want != (v1 || v2) || !want && len(found) > 0 {
			t.Errorf("%s: found %v, want a bound: %v", when, found, want)
		}
		if v1 && !strings.Contains(said, "profile bounded: limits.io_write_") {
			t.Errorf("nobody is told what cgroup v1 does not bound: %s", said)
		}
		if backend() != "systemd" {
			return
		}
		unit := opt.Cgroup + "-" + string(id) + ".service"
		out, err := exec.Command("systemctl", "show", "--value", "-p", "NeedDaemonReload", unit).CombinedOutput()
		expect.True(t, err == nil && strings.TrimSpace(string(out)) == "no",
			"%s: systemd wants to read %s again: %s, %v", when, unit, out, err)
	}
	check("awake", c.ID, true)
	check("without a bound", plain.ID, false)
	check("before it has one", old.ID, false)
	r := run(t, m, c.ID, "dd if=/dev/zero of=f bs=1M count=4 conv=fsync 2>/dev/null && stat -c %s f")
	expect.True(t, r.Stdout == "4194304\n", "a write under the bound: %+v", r)
	must.Get(m.Sleep(ctx, c.ID))(t)
	found := ioBounds(c.ID)
	expect.True(t, len(found) == 0, "asleep there is %v", found)
	must.Get(m.Wake(ctx, c.ID))(t)
	check("awake again", c.ID, true)

	must.Do(t, m.Close())
	edit(opt, "later", bound(8<<20))
	m = must.Get(openManager(t.Context(), opt))(t)
	check("adopted", c.ID, true)
	check("adopted without a bound", plain.ID, false)
	check("adopted with its first", old.ID, true)
	must.Do(t, m.Close())
	edit(opt, "later", bound(0))
	m = open(t, opt)
	check("adopted with none any more", old.ID, false)
	for _, id := range []chat.ID{c.ID, plain.ID, old.ID} {
		must.Do(t, m.Reap(ctx, id))
		left, err := filepath.Glob("/sys/fs/cgroup/blkio/*/" + string(id))
		if must.Do(t, err); len(left) > 0 {
			t.Errorf("reaped, it left %v", left)
		}
	}
}
