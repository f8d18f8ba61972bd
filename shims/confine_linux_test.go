package shims

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// confineName as its name makes this test binary chatd-shim confine, for the
// tests of Confine that need no session: rights that are gone do not come back.
const confineName = "confine-alone"

func confineAlone(t *testing.T, p plan.Plan) (string, int, []plan.Report) {
	t.Helper()
	p.Landlock, p.Dir = plan.View{Home: t.TempDir()}.Rules(), "/"
	cmd := exec.Command(os.Args[0])
	cmd.Args[0] = confineName
	return start(t, cmd, p, nil).wait(t)
}

// What the command really has is asked by the command, after the exec.
func TestConfineGivesUp(t *testing.T) {
	v := newView(t)
	out, code, reports := runIn(t, v, "cat", "/proc/self/status", "/proc/self/limits", "/proc/self/oom_score_adj")
	must.True(t, code == 0 && len(reports) == 1 && reports[0].Error == "",
		"exit %d, reports %+v, %s", code, reports, out)
	s := must.Get(plan.ParseStatus(out))(t)
	uid := int(v.UID)
	if !slices.Equal(s.UIDs, []int{uid, uid, uid, uid}) || !slices.Equal(s.GIDs, s.UIDs) || !slices.Equal(s.Groups, []int{}) && !slices.Equal(s.Groups, []int{uid}) {
		t.Errorf("ids: %+v", s)
	}
	expect.True(t, s.NoNewPrivs && s.Seccomp == 2 && s.CapEff|s.CapPrm|s.CapInh|s.CapAmb|s.CapBnd == 0,
		"rights: %+v", s)
	for _, want := range []string{"Max open files            1024                 1024", "Max core file size        0                    0",
		"Max locked memory         65536                65536", "Max msgqueue size         8192                 8192", "\n500", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"} {
		expect.True(t, strings.Contains(out, want), "want %q in:\n%s", want, out)
	}
	r := reports[0]
	if r.OOMScoreAdj != 500 || r.Landlock.ABI == 0 || !slices.Contains(r.Landlock.Rights, "make_char") || !slices.Equal(r.UIDs, s.UIDs) || r.Seccomp != 2 {
		t.Errorf("report: %+v", r)
	}
}

// Ignored signals and blocked ones are inherited by exec; so is the umask.
func TestConfineResetsSignals(t *testing.T) {
	v := newView(t)
	signal.Ignore(syscall.SIGTSTP, syscall.SIGINT)
	defer signal.Reset(syscall.SIGTSTP, syscall.SIGINT)
	before := must.Get(exec.Command("grep", "SigIgn", "/proc/self/status").Output())(t)
	must.True(t, !strings.Contains(string(before), "0000000000000000"), "the test ignores nothing")
	out, _, _ := runIn(t, v, "sh", "-c", "grep SigIgn /proc/self/status; umask; echo $LEAK; ls /proc/self/fd")
	if want := "SigIgn:\t0000000000000000\n0077\n\n0\n1\n2\n3"; out != want { // 3 is ls reading the directory
		t.Errorf("got %q, want %q", out, want)
	}
}

// The daemon's session keyring does not come along. Here it belongs to the chat,
// or /proc/keys would not show it in any case, and only who possesses it may see it.
func TestConfineNewKeyring(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the keyring ends with the thread
	v := newView(t)
	const name = "chatd-test-daemon"
	id := must.Get(unix.KeyctlJoinSessionKeyring(name))(t)
	must.Do(t, unix.KeyctlSetperm(id, 0x3f000000))
	must.Get(unix.KeyctlInt(unix.KEYCTL_CHOWN, id, int(v.UID), int(v.UID), 0))(t)
	out, code, _ := runIn(t, v, "cat", "/proc/keys")
	expect.True(t, code == 0 && !strings.Contains(out, name) && strings.Contains(out, "_ses"),
		"exit %d, keys: %s", code, out)
}

func TestConfineExitCodes(t *testing.T) {
	v := newView(t)
	for _, c := range []struct {
		name   string
		change func(*plan.Plan)
		code   int
		want   string
	}{
		{"not there", func(p *plan.Plan) { p.Argv = []string{"no-such-command"} }, 127, `cannot run "no-such-command": no such file`},
		{"not executable", func(p *plan.Plan) { p.Argv = []string{"/etc/passwd"} }, 126, `cannot run "/etc/passwd": permission denied`},
		{"a shim", func(p *plan.Plan) { p.Argv = []string{"sudo", "id"} }, 126, "chatd: sudo refused: a chat gains no privileges"},
		{"no directory", func(p *plan.Plan) { p.Dir = "/nowhere" }, 125, `cannot enter "/nowhere": no such file`},
		{"relative directory", func(p *plan.Plan) { p.Dir = "x" }, 125, "not absolute"},
		{"no command", func(p *plan.Plan) { p.Argv = nil }, 125, "no command"},
		{"Landlock too old", func(p *plan.Plan) { p.MinABI = 99 }, 125, "want at least 99"},
		{"the command's own", func(p *plan.Plan) { p.Argv = []string{"sh", "-c", "exit 7"} }, 7, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := v.Plan(v.Home, 1, []string{"true"}, nil)
			c.change(&p)
			out, code, reports := startSession(t, v, p).wait(t)
			expect.True(t, code == c.code && strings.Contains(out, c.want),
				"exit %d, want %d, said %q, want %q", code, c.code, out, c.want)
			expect.True(t, c.name != "no directory" || !strings.Contains(out, "confine: "),
				"a wrong directory sounds like a broken wall: %q", out)
			if c.code != 127 && c.code != 125 && c.name != "not executable" {
				return
			}
			if c.name == "relative directory" || c.name == "no command" {
				expect.True(t, len(reports) == 0,
					"a plan that cannot be read was reported: %+v", reports)
				return
			}
			n := len(reports)
			expect.True(t, n != 0 && strings.Contains(reports[n-1].Error, c.want), "reports: %+v", reports)
		})
	}
}

// Without a session: the same acts as any user and without bwrap, which sets
// no_new_privs itself and would hide that Confine does.
func TestConfineAloneSetsNoNewPrivs(t *testing.T) {
	need(t, os.Geteuid() == 0, "root: to have privileges that can be given up")
	for _, c := range []struct {
		without []chat.LayerName
		want    bool
	}{
		{nil, true},
		// Landlock's library sets it as well.
		{[]chat.LayerName{chat.LayerLandlock, chat.LayerSeccomp}, true},
		{[]chat.LayerName{chat.LayerPrivileges, chat.LayerLandlock, chat.LayerSeccomp}, false},
	} {
		out, code, _ := confineAlone(t, plan.Plan{Argv: []string{"/usr/bin/cat", "/proc/self/status"}, MinABI: 1, Without: c.without})
		s, err := plan.ParseStatus(out)
		must.True(t, err == nil && code == 0, "exit %d: %v: %s", code, err, out)
		none := s.CapEff|s.CapPrm|s.CapInh|s.CapAmb|s.CapBnd == 0
		expect.True(t, s.NoNewPrivs == c.want && none == c.want, "without %v: %+v", c.without, s)
	}
}

// TestCheckedCalls: package plan names the system calls that the filter checks by their arguments.
func TestCheckedCalls(t *testing.T) {
	info := must.Get(arch.GetInfo(""))(t)
	for _, may := range []plan.Openings{{}, {Filters: true}, {Netlink: true}} {
		var checked []string
		rules := argumentRules(info.SyscallNames, may)
		for i, ins := range rules[:len(rules)-1] { // see rule
			jump, ok := rules[i+1].(bpf.JumpIf)
			if load, isLoad := ins.(bpf.LoadAbsolute); isLoad && load.Off == nrOffset && ok {
				checked = append(checked, info.SyscallNumbers[int(jump.Val)])
			}
		}
		slices.Sort(checked)
		want := known(plan.CheckedCalls(may), info)
		if got := slices.Compact(checked); !slices.Equal(got, want) {
			t.Errorf("%+v: the filter checks %q, and the plan says %q", may, got, want)
		}
	}
}
