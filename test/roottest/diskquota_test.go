package roottest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// withDisk has the profile "narrow", whose chats may have 4 MiB and 200 files, and looks often.
func withDisk(opt provision.Options) provision.Options {
	narrow := opt.Profiles["default"]
	narrow.Name, narrow.Limits.DiskLimits = "narrow", chat.DiskLimits{DiskMax: 4 << 20, InodesMax: 200}
	opt.Profiles["narrow"], opt.DiskEvery = narrow, 50*time.Millisecond
	return opt
}

// enforcesQuotas reports whether the file system of tests' homes does.
func enforcesQuotas() bool {
	on, _ := diskquota.New().Enforces("/srv")
	return on
}

// TestDiskIsCounted: where no quota bounds a chat, it is told when its disk fills, in its log and in
// the audit log, and put to sleep when it has twice its limit, also by its /tmp. It wakes, can
// remove files and not write any, and works as before once it has removed enough.
func TestDiskIsCounted(t *testing.T) {
	needsRoot(t)
	if enforcesQuotas() {
		t.Skip("this host has quotas; TestHostQuota of test/vagrant shows them")
	}
	opt := withDisk(options(t))
	m := open(t, opt)
	c := create(t, m, "counted", "narrow")
	if got := strings.TrimSpace(run(t, m, c.ID, "head -c 3500000 /dev/zero >f; echo $?").Stdout); got != "0" {
		t.Fatalf("a chat below its limit cannot write: %s", got)
	}
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
	if r := run(t, m, c.ID, "rm f g /tmp/f"); r.Exit != 0 {
		t.Errorf("it cannot remove files: %+v", r)
	}
	until(t, "it can write", func() bool { return strings.TrimSpace(run(t, m, c.ID, write).Stdout) == "100000" })
	expect.True(t, isAwake(t, m, c), "it was put to sleep again")
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
}

func disk(t testing.TB, m *manager, c chat.Chat) *chat.DiskUsage {
	t.Helper()
	got := must.Get(m.Get(operator(t.Context()), c.ID))(t)
	return got.Disk
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
