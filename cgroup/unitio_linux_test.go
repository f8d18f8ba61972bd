package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestUnitIOOnSystemd: systemd sets the bounds of a unit, keeps them over a daemon-reload, takes
// them away, and never calls the unit changed on disk.
func TestUnitIOOnSystemd(t *testing.T) {
	if !Booted() {
		t.Log("systemd is not PID 1 here: only a machine of test/vagrant has it")
		return
	}
	needRoot(t)
	name := fmt.Sprintf("chatd-test-io-%d", os.Getpid())
	u := must.Get(OpenUnits(t.Context(), UnitOptions{Name: name, Dirs: []string{"/var/tmp"}}))(t)
	disks, lacking := u.disks()
	bounded := limits()
	bounded.IOWeight, bounded.IOReadBPS, bounded.IOWriteIOPS = 300, 8<<20, 1000
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must.Do(t, errors.Join(u.FS.Kill(ctx, idA), u.stop(ctx, idA), u.RemoveBase(), u.Close()))
	})
	must.True(t, len(disks) == 1 && len(lacking) == 0 && u.boundsDisks(),
		"the machine's disks are %v, %v", disks, lacking)
	must.Do(t, u.createProbe(idA, bounded))
	want := disks[0] + " rbps=8388608 wbps=max riops=max wiops=1000"
	check := func(when, want string) {
		t.Helper()
		await(t, when+": io.max "+want, func() bool {
			text, err := os.ReadFile(filepath.Join(u.dir(idA), "io.max"))
			return err == nil && strings.TrimSpace(string(text)) == want
		})
		out, err := exec.Command("systemctl", "show", "--value", "-p", "NeedDaemonReload", u.group(idA)).Output()
		expect.True(t, err == nil && strings.TrimSpace(string(out)) == "no",
			"%s: systemd wants to read the unit again: %s, %v", when, out, err)
	}
	check("started", want)
	must.Do(t, u.LimitCPU(idA, bounded))
	check("with its quota", want)
	must.Do(t, u.Limit(idA, bounded))
	check("limited", want)
	must.Do(t, exec.Command("systemctl", "daemon-reload").Run())
	check("after daemon-reload", want)
	bounded.IOReadBPS = 16 << 20
	must.Do(t, u.Limit(idA, bounded))
	check("changed", strings.Replace(want, "8388608", "16777216", 1))
	bounded.IOLimits = chat.DefaultLimits().IOLimits
	must.Do(t, u.Limit(idA, bounded))
	check("without a bound", "")
	must.Do(t, exec.Command("systemctl", "daemon-reload").Run())
	check("without one after daemon-reload", "")
}
