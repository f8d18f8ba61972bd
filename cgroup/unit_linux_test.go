package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func unitsFS(name string) *FS { return newUnitsFS(Options{Name: name}, "/sys/fs/cgroup/x.slice") }

// TestLendCPUToAUnit: a chat whose quota cannot be read is reported, and recorded as one.
func TestLendCPUToAUnit(t *testing.T) {
	const id = chat.ID("0123456789abcdef")
	f := unitsFS("chatd-none")
	expect.True(t, f.lendCPU(id) != nil, "a CPU was lent to a chat that is not there")
	expect.True(t, !f.lent[id].IsZero(), "it was not recorded")
}

func TestUnitNames(t *testing.T) {
	const id = chat.ID("0123456789abcdef")
	f := unitsFS("chatd")
	if got, want := f.dir(id, "session"), "/sys/fs/cgroup/x.slice/chatd-0123456789abcdef.service/session"; got != want {
		t.Errorf("dir is %s, want %s", got, want)
	}
	for name, want := range map[string]bool{
		"chatd-0123456789abcdef.service": true, "0123456789abcdef": false, "chatd-0123456789abcdef": false,
		"0123456789abcdef.service": false, "chatd-0123456789ABCDEF.service": false, "chatd-0123456789abcdef.slice": false,
		"chatd-chatd-0123456789abcdef.service": false, "chatd-0123456789abcdef.service.service": false, "foreign.service": false,
		"chatd-probe-0123456789abcdef.service": false, "": false,
	} {
		_, ok := f.idOf(name)
		expect.True(t, ok == want, "idOf(%q) is %v, want %v", name, ok, want)
	}
}

func FuzzUnitNames(f *testing.F) {
	for _, s := range []string{"chatd-0123456789abcdef.service", "../x", "chatd-.service", "a-b-0123456789abcdef.service"} {
		f.Add("chatd", s)
	}
	f.Fuzz(func(t *testing.T, name, unit string) {
		fs := unitsFS(name)
		if id, ok := fs.idOf(unit); ok && (fs.group(id) != unit || checkID(id) != nil) {
			t.Errorf("idOf(%q) took it for chat %s, whose unit is %s", unit, id, fs.group(id))
		}
	})
}

func TestIsOwn(t *testing.T) {
	u := &Units{FS: unitsFS("chatd")}
	known := func(id chat.ID) bool { return id == "0123456789abcdef" }
	for name, want := range map[string]bool{
		"chatd-0123456789abcdef.service": true, "chatd-probe-01.service": true,
		"chatd-fedcba9876543210.service": false, "foreign.service": false, "chatd-sub.slice": false, "session-1.scope": false,
	} {
		expect.Equal(t, u.isOwn(name, known), want, "isOwn(%s)", name)
	}
}

// TestSessionLimits: a session starts under its limits but the CPU quota.
func TestSessionLimits(t *testing.T) {
	got := map[string]string{}
	for _, p := range unitsFS("chatd").earlyProperties("0123456789abcdef", chat.DefaultLimits()) {
		got[p.Name] = p.Value.String()
	}
	for name, want := range map[string]string{
		"MemoryMax": "@t 268435456", "MemorySwapMax": "@t 0", "TasksMax": "@t 200", "CPUQuotaPerSecUSec": "",
	} {
		expect.Equal(t, got[name], want, "%s", name)
	}
}

func TestSessionPropertiesWithout(t *testing.T) {
	for _, l := range []chat.LayerName{chat.LayerMemory, chat.LayerPids, chat.LayerCPU} {
		f := unitsFS("chatd")
		f.o.Without = []chat.LayerName{l}
		const id = chat.ID("0123456789abcdef")
		props := append(f.lateProperties(id, chat.DefaultLimits()), f.earlyProperties(id, chat.DefaultLimits())...)
		word := map[chat.LayerName]string{chat.LayerMemory: "Memory", chat.LayerPids: "Tasks", chat.LayerCPU: "CPU"}[l]
		for _, p := range props {
			expect.True(t, !strings.HasPrefix(p.Name, word), "without %s there is %s", l, p.Name)
		}
		expect.True(t, len(props) >= 3, "without %s only %v is left", l, props)
	}
}

// TestPropertyOrder: systemd says ever after that a unit changed on disk if its drop-ins were not
// written in the order of their names; the quota is written first.
func TestPropertyOrder(t *testing.T) {
	const id = chat.ID("0123456789abcdef")
	f := unitsFS("chatd")
	early, late := names(f.earlyProperties(id, chat.DefaultLimits())), names(f.lateProperties(id, chat.DefaultLimits()))
	all := names(f.properties(id, chat.DefaultLimits(), isAny))
	expect.True(t, slices.IsSorted(all) && slices.Equal(all, append(late, early...)),
		"Start sets %v, LimitCPU %v, Limit %v: want them in order, the second's first", early, late, all)
}

func names(props []systemd.Property) (all []string) {
	for _, p := range props {
		all = append(all, p.Name)
	}
	return all
}

// TestCPUProperties: systemd counts in microseconds a second, whatever the period.
func TestCPUProperties(t *testing.T) {
	for _, c := range []struct {
		quota, period time.Duration
		want          string
	}{
		{250 * time.Millisecond, time.Second, "@t 250000"}, {time.Millisecond, 10 * time.Millisecond, "@t 100000"},
		{2 * time.Second, time.Second, "@t 2000000"}, {time.Millisecond, time.Second, "@t 1000"},
	} {
		l := chat.DefaultLimits()
		l.CPUQuota, l.CPUPeriod = chat.Duration(c.quota), chat.Duration(c.period)
		if p := unitCPU(nil, "", l); p[0].Value.String() != c.want {
			t.Errorf("%s in %s is %s, want %s", c.quota, c.period, p[0].Value, c.want)
		}
	}
}

func TestOpenUnitsNeedsSystemd(t *testing.T) {
	if Booted() {
		t.Log("systemd is PID 1 here; test/vagrant tries the rest")
		return
	}
	_, err := OpenUnits(t.Context(), Options{Name: "chatd"})
	expect.True(t, err != nil && strings.Contains(err.Error(), "systemd"), "OpenUnits gave %v without systemd", err)
	expect.True(t, expect.Err(OpenUnits(t.Context(), Options{Name: "../x"})) != nil,
		"OpenUnits took ../x for a name")
}

// TestUnitIOOnSystemd: systemd sets the bounds of a unit, keeps them over a daemon-reload, takes
// them away, and never calls the unit changed on disk.
func TestUnitIOOnSystemd(t *testing.T) {
	if !Booted() {
		t.Log("systemd is not PID 1 here: only a machine of test/vagrant has it")
		return
	}
	must.Root(t, "cgroups are made and removed")
	name := fmt.Sprintf("chatd-test-io-%d", os.Getpid())
	u := must.Get(OpenUnits(t.Context(), Options{Name: name, Dirs: []string{"/var/tmp"}}))(t)
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
