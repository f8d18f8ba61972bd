package roottest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// offCase shows that one wall is needed: an attack that it alone stops, once the
// walls that would stop it too are left out.
type offCase struct {
	layer chat.LayerName
	// also are the walls behind the wall.
	also []chat.LayerName
	// attack returns "ok…" when it went through.
	attack func(t *testing.T, m *manager) string
}

func offCases() []offCase {
	return []offCase{
		{chat.LayerAccount, nil, takeUID},
		{chat.LayerHome, []chat.LayerName{chat.LayerView, chat.LayerLandlock}, readNeighbourHome},
		{chat.LayerTmp, nil, readNeighbourTmp},
		{chat.LayerDisk, nil, keepMuch},
		{chat.LayerMemory, nil, func(t *testing.T, m *manager) string {
			return inmateOf(t, m, "memory", "small").try(t, "memory", "200")
		}},
		{chat.LayerSockets, nil, takeWaiting},
		{chat.LayerPids, nil, func(t *testing.T, m *manager) string {
			return inmateOf(t, m, "pids", "small").try(t, "children", "100")
		}},
		{chat.LayerCPU, nil, burnCPU},
		{chat.LayerEgress, nil, func(t *testing.T, m *manager) string {
			newPeer(t)
			// In a session chatd-egress refuses it, too.
			return asUser(t, inmateOf(t, m, "egress", "web").UID, "dial", "10.213.0.2:9000")
		}},
		{chat.LayerNetwork, nil, dialNeighbourAbstract},
		{chat.LayerNetwork, []chat.LayerName{chat.LayerEgress}, dialNeighbourLoopback},
		{chat.LayerProc, nil, seeNeighbour},
		{chat.LayerView, nil, func(t *testing.T, m *manager) string {
			a, b := inmateOf(t, m, "view a", "default"), inmateOf(t, m, "view b", "default")
			return a.try(t, "read", "/etc/userdb/"+b.User+".user")
		}},
		{chat.LayerView, nil, func(t *testing.T, m *manager) string {
			a, b := inmateOf(t, m, "opens a", "default"), inmateOf(t, m, "opens b", "default")
			return overheard(talkByOpens(t, a, b, "/usr/bin"))
		}},
		{chat.LayerView, nil, func(t *testing.T, m *manager) string {
			a, b := inmateOf(t, m, "locks a", "default"), inmateOf(t, m, "locks b", "default")
			return overheard(talkByLocks(t, a, b, "/usr/bin/env"))
		}},
		{chat.LayerView, nil, func(t *testing.T, m *manager) string {
			a, b := inmateOf(t, m, "flock a", "default"), inmateOf(t, m, "flock b", "default")
			// Not /dev/null: every daemon locks that when it tries its walls.
			return map[bool]string{true: "ok", false: "free"}[lockOut(t, a, b, "/dev/full") == "ok held" && lockOutHost(t, a, "/usr/bin/id") == "ok held"]
		}},
		{chat.LayerView, nil, func(t *testing.T, m *manager) string {
			got := inmateOf(t, m, "terminals", "default").try(t, "count-terminals", "200")
			return map[bool]string{true: "ok", false: "only " + got}[got == "ok 200"]
		}},
		{chat.LayerProc, nil, func(t *testing.T, m *manager) string {
			a := inmateOf(t, m, "counters", "default")
			return map[bool]string{true: "ok", false: "empty"}[a.sh(t, "cat /proc/vmstat | wc -l") != "0"]
		}},
		{chat.LayerLandlock, nil, func(t *testing.T, m *manager) string {
			return inmateOf(t, m, "root directory", "default").try(t, "list", "/")
		}},
		{chat.LayerLandlock, nil, func(t *testing.T, m *manager) string {
			got := lieInWait(t, inmateOf(t, m, "ambush", "default"), 30)
			return map[bool]string{true: got, false: "ok " + got}[strings.HasPrefix(got, "met")]
		}},
		{chat.LayerLandlock, []chat.LayerName{chat.LayerView}, readHostFile},
		{chat.LayerSeccomp, nil, func(t *testing.T, m *manager) string {
			return inmateOf(t, m, "keys", "default").try(t, "add_key")
		}},
		{chat.LayerSeccomp, nil, func(t *testing.T, m *manager) string {
			return inmateOf(t, m, "uevent", "default").try(t, "socket", strconv.Itoa(unix.AF_NETLINK), strconv.Itoa(unix.SOCK_DGRAM), strconv.Itoa(unix.NETLINK_KOBJECT_UEVENT))
		}},
		{chat.LayerSeccomp, nil, dropShared},
		{chat.LayerSeccomp, []chat.LayerName{chat.LayerLandlock}, func(t *testing.T, m *manager) string {
			a := inmateOf(t, m, "whiteout", "default")
			return a.try(t, "mknod", a.in("whiteout"), strconv.Itoa(unix.S_IFCHR), "0")
		}},
		{chat.LayerPrivileges, []chat.LayerName{chat.LayerSeccomp}, unshareInSession},
		{chat.LayerPath, nil, func(t *testing.T, m *manager) string {
			r := run(t, m, inmateOf(t, m, "path", "few").ID, "perl -e 'print qq(ok\\n)'")
			return lastLine(r.Stdout, r.Stderr)
		}},
	}
}

// TestLayersOff leaves out each wall in turn. Its probe must turn from on, and
// its attack must go through; with the wall there and the others out, the attack
// must fail.
func TestLayersOff(t *testing.T) {
	cases := offCases()
	for _, l := range chat.LayerNames() {
		expect.True(t, slices.ContainsFunc(cases, func(c offCase) bool { return c.layer == l }),
			"no case for layer %s", l)
	}
	t.Run("on", func(t *testing.T) {
		m := openWithout(t) // one daemon for all that leave out no other wall
		layers := layersNow(t, m)
		for i, c := range cases {
			if len(c.also) == 0 {
				t.Run(fmt.Sprintf("%s %d", c.layer, i), func(t *testing.T) { c.holds(t, m, layers) })
			}
		}
	})
	for _, without := range wallsLeftOut(cases) {
		t.Run("without "+fmt.Sprint(without), func(t *testing.T) {
			if slices.Contains(without, chat.LayerProc) {
				showProcesses(t)
			}
			m := openWithout(t, without...) // one daemon for all that leave out the same
			layers := layersNow(t, m)
			for i, c := range cases {
				if len(c.also) > 0 && sameWalls(without, c.also) {
					t.Run(fmt.Sprintf("on alone/%s %d", c.layer, i), func(t *testing.T) { c.holds(t, m, layers) })
				}
				if c.tried() && sameWalls(without, c.out()) {
					t.Run(fmt.Sprintf("off/%s %d", c.layer, i), func(t *testing.T) { c.falls(t, m, layers) })
				}
			}
		})
	}
}

// wallsLeftOut are the sets of walls that one of the cases wants to be left out, each once.
func wallsLeftOut(cases []offCase) (sets [][]chat.LayerName) {
	for _, c := range cases {
		for _, set := range [][]chat.LayerName{c.also, c.out()} {
			wanted := len(set) > 0 && (c.tried() || len(set) == len(c.also))
			there := func(had []chat.LayerName) bool { return sameWalls(had, set) }
			if wanted && !slices.ContainsFunc(sets, there) {
				sets = append(sets, set)
			}
		}
	}
	return sets
}

// otherOnHost are the layers that systemd provides where it is PID 1. With test.short only these
// are left out there; the others are the same code everywhere.
var otherOnHost = []chat.LayerName{chat.LayerAccount, chat.LayerTmp, chat.LayerMemory, chat.LayerPids, chat.LayerCPU, chat.LayerProc}

// tried reports whether the attack is tried without the wall.
func (c offCase) tried() bool {
	return !testing.Short() || !onHost() || slices.Contains(otherOnHost, c.layer)
}

// out is what is left out for the attack to go through.
func (c offCase) out() []chat.LayerName { return append([]chat.LayerName{c.layer}, c.also...) }

// sameWalls reports whether two sets of walls are the same, in whatever order.
func sameWalls(a, b []chat.LayerName) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// falls sees the probe turn from on, and the attack go through.
func (c offCase) falls(t *testing.T, m *manager, layers map[chat.LayerName]chat.Layer) {
	if l := layers[c.layer]; l.State != chat.LayerWeaker && l.State != chat.LayerOff {
		t.Errorf("its probe says %s: %s", l.State, l.Probe)
	}
	got := c.attack(t, m)
	expect.True(t, strings.HasPrefix(got, "ok"), "the attack does not go through: %s", got)
}

// holds sees the wall stand and the attack fail at it.
func (c offCase) holds(t *testing.T, m *manager, layers map[chat.LayerName]chat.Layer) {
	if l, want := layers[c.layer], promised(t, c.layer); l.State != want {
		t.Errorf("its probe says %s, want %s: %s", l.State, want, l.Probe)
	}
	got := c.attack(t, m)
	expect.True(t, !strings.HasPrefix(got, "ok"), "the attack goes through: %s", got)
}

// openWithout is a daemon that lacks the walls, with profiles more: one
// with little memory and few tasks, one with little CPU time, one with few commands.
func openWithout(t *testing.T, without ...chat.LayerName) *manager {
	t.Helper()
	must.Do(t, flushWalls()) // those that an earlier daemon left would stop what shall go through
	opt := withDisk(attackOptions(t))
	opt.Unwatched = true // what a test takes away stays away until it says reconcile
	opt.Without, opt.AllowMissing = without, append(without, chat.LayerNetwork)
	edit(opt, "small", func(p *chat.Profile) { p.Limits.MemoryMax, p.Limits.PidsMax = 64<<20, 50 })
	edit(opt, "slow", func(p *chat.Profile) {
		p.Limits.CPUQuota, p.Limits.CPUPeriod = p.Limits.CPUPeriod/200, p.Limits.CPUPeriod/10
	})
	edit(opt, "few", func(p *chat.Profile) { p.Commands = []string{"ls", "sh", "tmux"} })
	return open(t, opt)
}

// layersNow asks for the probes again, as doctor does.
func layersNow(t *testing.T, m *manager) map[chat.LayerName]chat.Layer {
	t.Helper()
	var layers map[chat.LayerName]chat.Layer
	until(t, "each layer could be tried", func() bool { // a busy host may have no time for one
		h := must.Get(m.Host(operator(t.Context())))(t)
		layers = map[chat.LayerName]chat.Layer{}
		for _, l := range h.Layers {
			layers[l.Name] = l
		}
		return !slices.ContainsFunc(h.Layers, isUnknown)
	})
	return layers
}

func isUnknown(l chat.Layer) bool { return l.State == chat.LayerUnknown }

// takeUID has the host's operator add a user with the number that the chat
// has: useradd(8) refuses a number that has an account. It works on a copy of
// /etc in a mount namespace of its own.
func takeUID(t *testing.T, m *manager) string {
	a := asleep(t, m, "uid") // systemd would not start a session without an account
	dir := filepath.Join(a.Home, "etc")
	t.Cleanup(func() { os.RemoveAll(dir) })
	script := `set -e; cp -a /etc "$0"; mount --bind "$0" /etc; useradd -M -u "$1" thief && echo ok`
	out, _ := exec.Command("unshare", "-m", "sh", "-c", script, dir, fmt.Sprint(a.UID)).CombinedOutput()
	return lastLine(string(out), "")
}

func readNeighbourHome(t *testing.T, m *manager) string {
	a, b := inmateOf(t, m, "home a", "default"), inmateOf(t, m, "home b", "default")
	b.sh(t, "umask 022; echo secret >note")
	return a.try(t, "read", b.in("note"))
}

// readNeighbourTmp leaves no trace in the host's /tmp, which is the chat's
// where the layer is left out.
func readNeighbourTmp(t *testing.T, m *manager) string {
	a, b := inmateOf(t, m, "tmp a", "default"), inmateOf(t, m, "tmp b", "default")
	name := "/tmp/chatd-attack-" + string(b.ID)
	t.Cleanup(func() { os.Remove(name) })
	b.sh(t, "umask 022; echo secret >"+name)
	return a.try(t, "read", name)
}

// burnCPU takes CPU time that the quota gives out in many portions, and asks
// whether the kernel held it back. The quota is a twentieth of a CPU, so that a
// busy machine, which gives everybody less, still gives more than that.
func burnCPU(t *testing.T, m *manager) string {
	a := inmateOf(t, m, "cpu", "slow")
	if got := a.try(t, "spin", "60"); got != "ok" {
		return got
	}
	c, err := m.Get(operator(t.Context()), a.ID)
	must.True(t, err == nil && c.Usage != nil, "no usage: %v", err)
	if c.Usage.Throttled > 0 {
		return fmt.Sprintf("throttled in %d periods", c.Usage.Throttled)
	}
	return "ok"
}

func dialNeighbourAbstract(t *testing.T, m *manager) string {
	a, b := inmateOf(t, m, "abstract a", "default"), inmateOf(t, m, "abstract b", "default")
	b.background(t, "ready", "serve-abstract", "chatd-off", b.in("ready"))
	return a.try(t, "dial-abstract", "chatd-off")
}

// dialNeighbourLoopback: in the host's network the packet rules are what keeps chats apart.
func dialNeighbourLoopback(t *testing.T, m *manager) string {
	a, b := inmateOf(t, m, "loopback a", "default"), inmateOf(t, m, "loopback b", "default")
	b.background(t, "port", "serve", "tcp", "127.0.0.1:0", b.in("port"))
	return a.try(t, "dial", net.JoinHostPort("127.0.0.1", portIn(t, b.in("port"))))
}

func seeNeighbour(t *testing.T, m *manager) string {
	a, b := inmateOf(t, m, "proc a", "default"), inmateOf(t, m, "proc b", "default")
	b.background(t, "ready", "serve-unix", b.in("secret-27182"), b.in("ready"))
	return a.try(t, "seek", "secret-27182")
}

// readHostFile reads what a careless operator left for everybody, where only
// the view hid it.
func readHostFile(t *testing.T, m *manager) string {
	const name = "/srv/for-everybody"
	must.Do(t, os.WriteFile(name, []byte("secret"), 0o644))
	t.Cleanup(func() { os.Remove(name) })
	return inmateOf(t, m, "reader", "default").try(t, "read", name)
}

// unshareInSession makes a mount namespace from the session's own shell, which
// is what bubblewrap gave its capabilities to.
func unshareInSession(t *testing.T, m *manager) string {
	a := inmateOf(t, m, "unshare", "default")
	a.typeLine(t, fmt.Sprintf("%s unshare %d >~/got.new; mv ~/got.new ~/got", a.program, unix.CLONE_NEWNS))
	must.Do(t, awaitFile(a.in("got")))
	return strings.TrimSpace(string(must.Get(os.ReadFile(a.in("got")))(t)))
}

// TestLayersBehindItsBack takes the packet rules away while the daemon runs: the
// probe sees it, an attack from outside the session goes through, and reconcile puts the
// rules back. In the session chatd-egress refuses it meanwhile.
func TestLayersBehindItsBack(t *testing.T) {
	m := openWithout(t)
	newPeer(t)
	a := inmateOf(t, m, "behind", "web")
	ipt := func(args ...string) []string { return append([]string{"iptables", "-w", "10"}, args...) }
	for _, c := range []struct {
		name   string
		layer  chat.LayerName
		do     [][]string
		attack []string
		want   string
	}{
		{"the jump", chat.LayerEgress, [][]string{ipt("-F", "OUTPUT")}, []string{"dial", "203.0.113.2:80"}, "ok"},
		{"an accept before it", chat.LayerEgress, [][]string{ipt("-I", "OUTPUT", "-j", "ACCEPT")}, []string{"dial", "203.0.113.2:80"}, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := layersNow(t, m)[c.layer]
			outcomes(t, "before", asUser(t, a.UID, c.attack...), refusals)
			for _, argv := range c.do {
				must.Run(t, exec.Command(argv[0], argv[1:]...))
			}
			// Where it is weaker anyway, what was found must differ.
			if l := layersNow(t, m)[c.layer]; l.State == chat.LayerOn || l.State == before.State && l.Probe == before.Probe {
				t.Errorf("its probe says %s: %s", l.State, l.Probe)
			}
			outcomes(t, "without", asUser(t, a.UID, c.attack...), c.want)
			outcomes(t, "without, in its session", a.try(t, c.attack...), refusals)
			m.Reconcile(operator(t.Context()))
			if l, want := layersNow(t, m)[c.layer], promised(t, c.layer); l.State != want {
				t.Errorf("after reconcile its probe says %s, want %s: %s", l.State, want, l.Probe)
			}
			outcomes(t, "after", asUser(t, a.UID, c.attack...), refusals)
		})
	}
}

// overheard is "ok" where what one chat said was heard by the other.
func overheard(heard string) string {
	if strings.Contains(heard, spoken) {
		return "ok"
	}
	return "heard " + strconv.Quote(heard)
}

// dropShared asks the kernel, by dd(1), to drop a program of the host from the page cache: whether
// it has to be read again is a message to another chat. A host may drop it by itself, but not each
// time.
func dropShared(t *testing.T, m *manager) string {
	const file = "/usr/bin/ptx"
	a := inmateOf(t, m, "drop", "default")
	for range 3 {
		content := must.Get(os.ReadFile(file))(t)
		a.sh(t, "dd if="+file+" iflag=nocache count=0 status=none")
		if n := pagesInMemory(t, file, len(content)); n > 0 {
			return fmt.Sprintf("%d pages stay", n)
		}
	}
	return "ok"
}

// pagesInMemory counts the pages of a file in the page cache (mincore(2)).
func pagesInMemory(t *testing.T, file string, size int) (n int) {
	t.Helper()
	f := must.Get(os.Open(file))(t)
	defer f.Close()
	at := must.Get(unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED))(t)
	defer func() { must.Do(t, unix.Munmap(at)) }()
	in := make([]byte, (size+os.Getpagesize()-1)/os.Getpagesize())
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&at[0])), uintptr(size), uintptr(unsafe.Pointer(&in[0])))
	must.True(t, e == 0, "%v", e)
	for _, page := range in {
		n += int(page & 1)
	}
	return n
}
