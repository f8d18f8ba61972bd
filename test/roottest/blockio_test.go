package roottest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// ioBounds are what the kernel's files of block I/O hold for a chat, by name, as far as they hold
// anything.
func ioBounds(t *testing.T, id chat.ID) map[string]string {
	t.Helper()
	found := map[string]string{}
	must.Do(t, filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		of := name == "io.max" || strings.HasPrefix(name, "blkio.throttle.") && strings.HasSuffix(name, "ps_device")
		if err != nil || !of || !strings.Contains(filepath.Base(filepath.Dir(path)), string(id)) {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			found[name] = strings.TrimSpace(string(text))
		}
		return nil
	}))
	return found
}

// TestBlockIO: a profile's bounds on block I/O are in the kernel's files of its chats, and of no
// others, while they are awake: also those of a chat that was awake before the profile had any.
// What the host does not keep is a finding. systemd calls no unit changed on disk.
func TestBlockIO(t *testing.T) {
	opt := options(t)
	later := opt.Profiles["default"]
	later.Name = "later"
	opt.Profiles["later"] = later
	bounded := later
	bounded.Name, bounded.Limits.IOReadBPS, bounded.Limits.IOWriteBPS = "bounded", 8<<20, 8<<20
	opt.Profiles["bounded"] = bounded
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
		found := ioBounds(t, id)
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
	if r := run(t, m, c.ID, "dd if=/dev/zero of=f bs=1M count=4 conv=fsync 2>/dev/null && stat -c %s f"); r.Stdout != "4194304\n" {
		t.Errorf("a write under the bound: %+v", r)
	}
	must.Get(m.Sleep(ctx, c.ID))(t)
	if found := ioBounds(t, c.ID); len(found) > 0 {
		t.Errorf("asleep there is %v", found)
	}
	must.Get(m.Wake(ctx, c.ID))(t)
	check("awake again", c.ID, true)

	must.Do(t, m.Close())
	bounded.Name = "later"
	opt.Profiles["later"] = bounded
	m = must.Get(openManager(t.Context(), opt))(t)
	check("adopted", c.ID, true)
	check("adopted without a bound", plain.ID, false)
	check("adopted with its first", old.ID, true)
	must.Do(t, m.Close())
	opt.Profiles["later"] = later
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
