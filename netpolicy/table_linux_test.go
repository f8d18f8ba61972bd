package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func apply(t testing.TB, table *Table, policies []Policy) {
	t.Helper()
	must.Do(t, table.Apply(t.Context(), policies))
}

func drift(t testing.TB, table *Table) []string {
	t.Helper()
	return must.Get(table.Drift())(t)
}

// ours is every trace of chatd in the kernel's rules.
func ours(t testing.TB, set tools) string {
	return run(t, fmt.Sprintf("{ %s -S; %s -S; nft list tables; } 2>/dev/null | grep -i chatd || true", set.iptables, set.ip6tables))
}

func TestApplyTwiceAndRemove(t *testing.T) {
	eachBackend(t, func(t *testing.T, set tools) {
		table := newTable(t, set)
		found := drift(t, table)
		expect.True(t, len(found) == 1, "before Apply: %q", found)
		many := manyPolicies(t, 40)
		apply(t, table, many)
		once := ours(t, set)
		apply(t, table, many)
		twice := ours(t, set)
		expect.True(t, twice == once, "a second Apply left\n%s\nafter\n%s", twice, once)
		found = drift(t, table)
		expect.True(t, len(found) == 0, "after Apply: %q", found)
		apply(t, table, many[:1])
		if left := ours(t, set); strings.Contains(left, "CHATD-P1 ") || strings.Contains(left, "CHATD-T") {
			t.Errorf("chains of policies that are gone: %s", left)
		}
		for range 2 {
			expect.NoError(t, table.Remove(t.Context()))
		}
		expect.Equal(t, ours(t, set), "", "Remove left")
	})
}

// A second Table, as after a restart of chatd, must take the wall over without an open connection
// breaking.
func TestRestartKeepsConnections(t *testing.T) {
	out := outside(t)
	apply(t, newTable(t, hostTools), testPolicy(t, 9999))
	s := serve(t, out, 0, "203.0.113.5", 8000, "tcp")
	fd := connected(t, uidA, "203.0.113.5", 8000)
	apply(t, newTable(t, hostTools), testPolicy(t, 9998))
	n := len(jumps(lines(run(t, "iptables -S OUTPUT"))))
	expect.True(t, n == 1, "%d jumps", n)
	expect.NoError(t, expect.Err(unix.Write(fd, []byte("still here"))))
	waitFor(t, func() bool { return s.heard() == "still here" })
}

func lines(s string) []string { return strings.Split(s, "\n") }

func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Error("waited in vain")
}

// connected is an open connection of uid; the greeting is read.
func connected(t testing.TB, uid uint32, host string, port int) int {
	t.Helper()
	addr := netip.MustParseAddr(host)
	fd := -1
	err := sys.AsUID(uid, func() (err error) {
		if fd, err = testSocket(addr, "tcp"); err != nil {
			return err
		}
		if err = unix.Connect(fd, sockaddr(addr, port)); err == nil {
			_, err = unix.Read(fd, make([]byte, 16))
		}
		return err
	})
	must.True(t, err == nil, "cannot connect %d to %s:%d: %v", uid, host, port, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func TestTightenedPolicyCutsConnections(t *testing.T) {
	table, out := newTable(t, hostTools), outside(t)
	host := serve(t, nil, 0, "127.0.0.1", 0, "tcp")
	for _, h := range []string{"203.0.113.5", "2001:db8:1::5"} {
		serve(t, out, 0, h, 8000, "tcp")
	}
	for _, x := range []struct {
		host string
		port int
	}{{"203.0.113.5", 8000}, {"2001:db8:1::5", 8000}, {"127.0.0.1", host.port}} {
		apply(t, table, testPolicy(t, host.port))
		fd := connected(t, uidA, x.host, x.port)
		closed := testPolicy(t, 1)
		closed[0].Egress = nil
		apply(t, table, closed)
		_, _ = unix.Write(fd, []byte("late")) // the refusal may come with this call or the next
		_, err := unix.Read(fd, make([]byte, 16))
		if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EPIPE) {
			t.Errorf("%s: %v, want a reset", x.host, err)
		}
	}
	expect.Equal(t, host.heard(), "", "the host heard")
}

func TestDriftIsFoundAndMended(t *testing.T) {
	eachBackend(t, func(t *testing.T, set tools) {
		table := newTable(t, set)
		for _, line := range []string{
			"IPT -F", "IP6 -F", "IPT -D OUTPUT 1", "IP6 -D OUTPUT 1", "IPT -I OUTPUT 1 -o lo -j ACCEPT", "IP6 -I OUTPUT 1 -o lo -j ACCEPT",
			"IPT -F CHATD-NO", "IPT -I CHATD 1 -j ACCEPT", "IPT -D CHATD-META 1", "IP6 -A CHATD-DENY -j ACCEPT", "IPT -N CHATD-X",
			"IPT -I OUTPUT 2 -m owner --uid-owner 1879048192-1895825407 -j CHATD", "IPT -I OUTPUT 1 -m owner --uid-owner 5 -j CHATD",
		} {
			apply(t, table, testPolicy(t, 7777))
			good := ours(t, set)
			run(t, strings.NewReplacer("IPT", set.iptables, "IP6", set.ip6tables).Replace(line))
			found := drift(t, table)
			expect.True(t, len(found) != 0, "%s: not found", line)
			apply(t, table, testPolicy(t, 7777))
			if again := drift(t, table); len(again) != 0 || ours(t, set) != good {
				t.Errorf("%s: not mended: %q\n%s", line, again, ours(t, set))
			}
			t.Logf("%s: %s", line, strings.Join(found, " "))
			run(t, set.iptables+" -F OUTPUT; "+set.ip6tables+" -F OUTPUT")
		}
	})
}

func TestNeitherFamilyWhenOneFails(t *testing.T) {
	table := newTable(t, hostTools)
	apply(t, table, testPolicy(t, 1))
	before := ours(t, hostTools)
	good := table.sides[1].restore
	// A restore that passes --test and fails in earnest, once.
	fake := t.TempDir() + "/restore"
	script := "#!/bin/sh\ncase \"$*\" in *--test*) exec " + good + " \"$@\";; esac\n" +
		"[ -e " + fake + ".used ] && exec " + good + " \"$@\"\ntouch " + fake + ".used\ncat >/dev/null\nexit 4\n"
	must.Do(t, os.WriteFile(fake, []byte(script), 0o755))
	table.sides[1].restore = fake
	err := table.Apply(t.Context(), testPolicy(t, 2))
	expect.True(t, err != nil && strings.HasPrefix(err.Error(), "cannot "), "error %v", err)
	table.sides[1].restore = good
	after := ours(t, hostTools)
	expect.True(t, after == before, "left\n%s\nwant\n%s", after, before)
	found := drift(t, table)
	expect.True(t, len(found) == 0, "after the rollback: %q", found)
}

func TestApplyRefusesBeforeTouching(t *testing.T) {
	table := newTable(t, hostTools)
	bad := testPolicy(t, 1)
	bad[0].Blocks = []Range{{1000, 1001}}
	expect.Is(t, table.Apply(t.Context(), bad), chat.ErrInvalid, "error")
	expect.Equal(t, ours(t, hostTools), "", "touched")
}

func TestOpenSaysWhatToInstall(t *testing.T) {
	for _, o := range []Options{{}, {Range: Range{1, 5}, ProbeUID: 6}, {Range: Range{5, 1}, ProbeUID: 3}, {Range: Range{1, ^uint32(0)}, ProbeUID: 3}} {
		expect.Is(t, expect.Err(Open(o)), chat.ErrInvalid, "%v", o)
	}
	missing := hostTools
	missing.restore6 = "no-such-restore"
	if _, err := open(testOptions, missing); !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "install") {
		t.Errorf("error %v, want unsupported and what to install", err)
	}
}

func TestProbe(t *testing.T) {
	table := newTable(t, hostTools)
	out := outside(t)
	for _, h := range []string{"192.0.2.1", "2001:db8::1"} {
		serve(t, out, 0, h, 443, "tcp")
		serve(t, out, 0, h, 53, "udp")
	}
	stands := func(t *testing.T, want chat.LayerState) {
		t.Helper()
		l := table.Probe()
		t.Logf("%s %s by %s: %s. %s", l.Name, l.State, l.By, l.Probe, l.Fix)
		expect.True(t, l.State == want && (l.Fix == "") == (l.State == chat.LayerOn),
			"%s is %s with fix %q, want %s", l.Name, l.State, l.Fix, want)
	}
	stands(t, chat.LayerOff)
	for _, x := range []struct {
		name, line string
		want       chat.LayerState
	}{
		{"as applied", "true", chat.LayerOn},
		{"jump gone", "iptables -D OUTPUT 1", chat.LayerOff},
		{"accepted before", "ip6tables -I OUTPUT -j ACCEPT", chat.LayerOff},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Cleanup(func() { run(t, "iptables -F OUTPUT; ip6tables -F OUTPUT") })
			policies := testPolicy(t, 1)
			policies[0].Blocks = []Range{testOptions.Range}
			policies[0].Egress = append(policies[0].Egress, allow(t, "0.0.0.0/0:1-65535"), allow(t, "[::/0]:1-65535"))
			apply(t, table, policies)
			run(t, x.line)
			stands(t, x.want)
		})
	}
}

// TestProbeWithoutRoute: where nothing can be sent, nothing says that the wall stands; what lo
// refuses does.
func TestProbeWithoutRoute(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	if os.Getenv("CHATD_TEST_NO_ROUTE") == "" { // other tests make routes
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestProbeWithoutRoute$")
		cmd.Env = append(os.Environ(), "CHATD_TEST_NO_ROUTE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		expect.True(t, err == nil, "%v\n%s", err, out)
		return
	}
	table := newTable(t, hostTools)
	policies := testPolicy(t, 1)
	policies[0].Blocks = []Range{testOptions.Range}
	apply(t, table, policies)
	for _, x := range []struct {
		line string
		want chat.LayerState
	}{{"true", chat.LayerOn}, {"ip address flush dev lo; ip link set lo down", chat.LayerUnknown}} {
		run(t, x.line)
		if l := table.Probe(); l.State != x.want || (l.Fix == "") != (l.State == chat.LayerOn) {
			t.Errorf("after %s: %+v, want %s", x.line, l, x.want)
		}
	}
}

// TestProbeTries: what the probe sends gets through where nothing refuses it, so that its answer
// says something.
func TestProbeTries(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	table := newTable(t, hostTools)
	for _, host := range []string{"127.0.0.1", "::1"} {
		expect.Is(t, table.probeListener(host), nil, "without rules %s", host)
	}
	var l chat.Layer
	if table.probeLoopback(&l); l.State != chat.LayerOff || strings.Count(l.Probe, "got through") != 2 {
		t.Errorf("without rules the probe says %+v", l)
	}
}

// ownMounts mounts dir over a directory for this process alone. It is called once for each.
func ownMounts(t *testing.T, over string) {
	t.Helper()
	must.Root(t, "network namespaces and iptables")
	for _, act := range []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", over, "tmpfs", 0, "mode=755") },
	} {
		must.Do(t, act())
	}
	t.Cleanup(func() { expect.NoError(t, unix.Unmount(over, unix.MNT_DETACH)) })
}

// TestSilentNameService: the wall is raised, mended and removed while a name service takes
// questions and answers none: the owner match asks it for each uid.
func TestSilentNameService(t *testing.T) {
	ownMounts(t, "/run/systemd")
	dir := "/run/systemd/userdb"
	must.Do(t, os.Mkdir(dir, 0o755))
	l := must.Get(net.Listen("unix", filepath.Join(dir, "io.systemd.Silent")))(t)
	defer l.Close()
	for name, set := range backends() {
		table := newTable(t, set)
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second) // one lookup takes longer
		err := table.Apply(ctx, nil)
		if err == nil {
			run(t, set.iptables+" -F OUTPUT")
			_, err = table.Mend(ctx)
		}
		if err = errors.Join(err, table.Remove(ctx), ctx.Err()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		stop()
	}
}

// TestHeldLock: while another program holds the xtables lock, a call fails as busy, says why and
// changes nothing; when it is free again, the same call is done.
func TestHeldLock(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	set, ok := backends()["legacy"]
	if !ok {
		t.Skip("no iptables-legacy, or it is the host's own")
	}
	opt := testOptions
	opt.LockWait = time.Second
	table := must.Get(open(opt, set))(t)
	ownMounts(t, "/run") // the lock is one for all namespaces of the network
	lock := must.Get(os.Create("/run/xtables.lock"))(t)
	defer lock.Close()
	must.Do(t, table.Apply(t.Context(), nil))
	rules := func() string { return run(t, set.iptables+"-save | grep -v ^#") }
	before := rules()
	policies := []Policy{{Profile: "web", Blocks: []Range{{rangeLow + 65536, rangeLow + 131071}}}}
	must.Do(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Apply", func() error { return table.Apply(t.Context(), policies) }},
		{"Mend", func() error { _, err := table.Mend(t.Context()); return err }},
		{"Remove", func() error { return table.Remove(t.Context()) }}, // after it nothing is mended
	} {
		err := c.call()
		expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "xtables lock"),
			"%s: %v, want %v", c.name, err, chat.ErrBusy)
	}
	must.Do(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN))
	expect.Equal(t, rules(), before, "before %s\nafter", before)
	expect.NoError(t, errors.Join(table.Apply(t.Context(), policies), table.Remove(t.Context())))
}
