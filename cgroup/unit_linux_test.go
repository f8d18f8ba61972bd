package cgroup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
)

func unitsFS(name string) *FS { return newUnitsFS(Options{Name: name}, "/sys/fs/cgroup/x.slice") }

// TestLendCPUToAUnit: a chat whose quota cannot be read is reported, and recorded as one.
func TestLendCPUToAUnit(t *testing.T) {
	const id = chat.ID("0123456789abcdef")
	f := unitsFS("chatd-none")
	if err := f.lendCPU(id); err == nil {
		t.Error("a CPU was lent to a chat that is not there")
	}
	if f.lent[id].IsZero() {
		t.Error("it was not recorded")
	}
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
		if _, ok := f.idOf(name); ok != want {
			t.Errorf("idOf(%q) is %v, want %v", name, ok, want)
		}
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
		if got := u.isOwn(name, known); got != want {
			t.Errorf("isOwn(%s) is %v, want %v", name, got, want)
		}
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
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
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
			if strings.HasPrefix(p.Name, word) {
				t.Errorf("without %s there is %s", l, p.Name)
			}
		}
		if len(props) < 3 {
			t.Errorf("without %s only %v is left", l, props)
		}
	}
}

// TestPropertyOrder: systemd says ever after that a unit changed on disk if its drop-ins were not
// written in the order of their names; the quota is written first.
func TestPropertyOrder(t *testing.T) {
	const id = chat.ID("0123456789abcdef")
	f := unitsFS("chatd")
	early, late := names(f.earlyProperties(id, chat.DefaultLimits())), names(f.lateProperties(id, chat.DefaultLimits()))
	all := names(f.properties(id, chat.DefaultLimits(), isAny))
	if !slices.IsSorted(all) || !slices.Equal(all, append(late, early...)) {
		t.Errorf("Start sets %v, LimitCPU %v, Limit %v: want them in order, the second's first", early, late, all)
	}
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
	if _, err := OpenUnits(t.Context(), UnitOptions{Name: "chatd"}); err == nil || !strings.Contains(err.Error(), "systemd") {
		t.Errorf("OpenUnits gave %v without systemd", err)
	}
	if _, err := OpenUnits(t.Context(), UnitOptions{Name: "../x"}); err == nil {
		t.Error("OpenUnits took ../x for a name")
	}
}
