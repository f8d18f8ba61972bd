package chatd

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/callgraph/rta"
	load "golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

// maxEnforced bounds the own code lines that chatd-enforce can reach from main. The plan is 3,000,
// and adrs/0037 says what stands in the way. The bound may only fall. It rose by 120 for what finds
// the files that a chat moves: without it they could be read. It rose by 85 for a worker that
// becomes the holder, and for sessions that are recorded before their first mount. It rose by 90
// for groups that outlive it: adrs/0049. It rose by 22 for keyed literals and small functions
// between its packages: adrs/0067. It rose by 5 for the forms of a host name in package chat.
const maxEnforced = 4_935

// TestEnforceStaysSmall measures what is reachable from chatd-enforce's main, by rapid type
// analysis: an upper bound, for every method of a type that becomes an interface counts.
func TestEnforceStaysSmall(t *testing.T) {
	staysSmall(t, "chatd-enforce", maxEnforced, "enforce", 1000)
}

// maxRooted bounds the own code lines that chatd-root can reach from main. The plan is 9,000:
// specs/0009 says what is to leave it. The bound may only fall.
// It rose by 80 for check, which chatd did until then, and linked all of provision for.
// It rose by 25 for a start that tries walls beside each other.
// It rose by 15 for orders that are given again when the enforcer ends.
// It rose by 25 for what nsenter says of a command that did not reach its session, and by 30 for
// standard input that is handed over and not copied.
// It rose by 190 for the enforcer's groups, which it holds: adrs/0049.
// It rose by 110 for starts that do not pay for the host's mounts: adrs/0052.
// It rose by 390 for limits in one table and bounds on block I/O: the disks under a chat, a
// controller that only some chats need, and what is lifted from the dying.
// It rose by 65 for the options and small types of package enforcer: adrs/0050.
// It rose by 118 for the processes of a chat, of which it reads two files each.
// It rose by 41 for the small types of package console: adrs/0053.
// It rose by 45 for the methods of package systemd: adrs/0060.
// It rose by 125 for the options and small types of package session: adrs/0054.
// It rose by 90 for the small types of package layers, and for lines that were wrapped: adrs/0058.
// It rose by 20 for the options of package sockets, which watches sessions.
// It rose by 125 for the small types of package background, and for lines that were wrapped:
// adrs/0055.
// It rose by 50 for the small types of package filecall: adrs/0056.
// It rose by 50 for small functions of packages enforcer and verdict: adrs/0059.
// It rose by 45 for the small types of package due, and for lines that were wrapped: adrs/0062.
// It rose by 70 for the options and small functions of package hostprobe: adrs/0064.
// It rose by 35 for small functions of package console, and for lines that were wrapped: adrs/0066.
// It rose by 80 for the options and small types of package policy: adrs/0065.
// It rose by 30 for the structs of package view, and for lines that were wrapped: adrs/0063.
// It rose by 30 for the small functions of package shares, and for lines that were wrapped:
// adrs/0069.
// It rose by 210 for names in egress: their form and what they open, destinations that are
// explained, sockets of a uid and a gid, DNS servers.
// It rose by 1,450 for sessions with a network of their own: packages netns, gateway and uplink
// have
// 940; the rest makes their sockets, their packet rules and the egress of single chats (adrs/0073).
// It rose by 100 for uplinks whose ends do not wait for each other, and for chats that are tried
// again. It fell by 270 with the table of the shared loopback (adrs/0074).
// It rose by 680 for secrets: their form, their files, the authority and what is told of them
// (adrs/0075).
// It rose by 320 for the log of what became of connections: package traffic has 160, the checks of
// what chatd-egress reports 110.
// It rose by 80 for connections that are told while they are open, by 60 for lines of the audit log
// that are bounded over days, by 60 for answers to the same port and for links to secrets, and by
// 50 for chats that chatd-egress hears of one by one and for names that are looked up to explain.
// It rose by 700 for changes of living chats: patches that are checked and put in force, what a
// session has otherwise, and the drift of limits (adrs/0083).
// It rose by 320 for admission by memory, and names of who is at work (adrs/0084).
// It rose by 640 for what chats have on disk: package diskquota has 480 (adrs/0079).
// It rose by 1,500 for archives of chats and what makes chats of them again: package archives has
// 420, archiver 260 (adrs/0091).
// It rose by 300 for frozen chats (adrs/0090).
// It rose by 800 for the scan for files of reaped chats, of which package leftovers has 400. The
// walker is no part of it; the lines of the audit log are that say who had a uid (adrs/0088).
// It rose by 100 for waits that have a bound, and for a clock that is set (adrs/0089).
// It rose by 210 for the faults of disks, admission and archives that a review found.
// It rose by 350 for snapshots: a pause of a chat, and a session beside its own (adrs/0092), and
// for a clock that was set while chatd was down (adrs/0093).
// It rose by 20 for reports that are counted once, and for a CPU quota that a starved host hides.
const maxRooted = 34_940

// TestRootStaysSmall measures chatd-root as TestEnforceStaysSmall does the enforcer.
func TestRootStaysSmall(t *testing.T) {
	staysSmall(t, "chatd-root", maxRooted, "provision", 2000)
}

// staysSmall bounds the own lines that a program reaches. Fewer than least of its main folder
// show that the measure is broken.
func staysSmall(t *testing.T, program string, max int, folder string, least int) {
	t.Helper()
	lines := reachable(t, program)
	total := 0
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		t.Logf("%6d lines of %s", lines[dir], dir)
		total += lines[dir]
	}
	if lines[folder] < least {
		t.Errorf("%d lines of %s are reachable: the measure is broken", lines[folder], folder)
	}
	if total > max {
		t.Errorf("%d own lines are reachable from %s, want at most %d", total, program, max)
	}
	t.Logf("%6d lines in all", total)
}

// TestRootLinksLittle keeps what reads callers' requests out of chatd-root.
func TestRootLinksLittle(t *testing.T) {
	deps := depsOf(t, "./cmd/chatd-root")
	if !slices.Contains(deps, module+"/provision") {
		t.Errorf("chatd-root does not link provision: %s", deps)
	}
	for _, dep := range deps {
		if slices.Contains([]string{"api", "mcp", "termsafe", "front", "runs", "guard", "shell", "schedule", "archive", "cmd/chatd"}, folder(dep)) {
			t.Errorf("chatd-root links %s", dep)
		}
		for _, not := range []string{
			"net/http", "crypto/tls", "github.com/danielgtaylor/huma", "github.com/modelcontextprotocol", "github.com/google/jsonschema-go",
			"github.com/urfave/cli", "github.com/charmbracelet/x", "mvdan.cc/sh", "github.com/robfig/cron", "time/tzdata", "database/sql",
			"filippo.io/age", "github.com/klauspost/compress",
		} {
			if dep == not || strings.HasPrefix(dep, not+"/") {
				t.Errorf("chatd-root links %s", dep)
			}
		}
	}
}

// depsOf are the packages that a program links.
func depsOf(t *testing.T, program string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", program)
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// enforceMayNot are what no root process that reads little needs.
var enforceMayNot = []string{
	"net/http", "crypto/tls", "github.com/danielgtaylor/huma", "github.com/modelcontextprotocol", "github.com/urfave/cli", "mvdan.cc/sh",
	"github.com/robfig/cron", "github.com/charmbracelet/x", "go.etcd.io/bbolt", "github.com/godbus", "github.com/containerd", "database/sql",
}

// TestEnforceLinksLittle keeps what reads callers' and chats' text out of chatd-enforce.
func TestEnforceLinksLittle(t *testing.T) {
	deps := depsOf(t, "./cmd/chatd-enforce")
	if !slices.Contains(deps, module+"/enforce") {
		t.Errorf("chatd-enforce does not link enforce: %s", deps)
	}
	for _, dep := range deps {
		if strings.HasPrefix(dep, module) && !slices.Contains([]string{
			"chat", "filerules", "enforce", "walls", "masks", "orders", "sys", "cmd/chatd-enforce",
		}, folder(dep)) {
			t.Errorf("chatd-enforce links %s", dep)
		}
		for _, not := range enforceMayNot {
			if dep == not || strings.HasPrefix(dep, not+"/") {
				t.Errorf("chatd-enforce links %s", dep)
			}
		}
	}
}

// binaries are the six programs: their folders below cmd.
var binaries = []string{
	"chatd-root", "chatd-enforce", "chatd-egress", "chatd-shim", "chatd-archive", "chatd",
}

var (
	reachOnce sync.Once
	reachOf   map[string]map[string]int
)

// reachable counts the code lines, by folder, of this module's functions that main of a
// program can reach. The six programs are loaded once, together.
func reachable(t *testing.T, program string) map[string]int {
	t.Helper()
	reachOnce.Do(func() { reachOf = reachAll(t) })
	if reachOf[program] == nil {
		t.Fatalf("cannot measure %s: the programs could not be loaded", program)
	}
	return reachOf[program]
}

func reachAll(t *testing.T) map[string]map[string]int {
	t.Helper()
	cfg := &load.Config{
		Mode: load.LoadAllSyntax,
		Env:  append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false"),
	}
	var patterns []string
	for _, program := range binaries {
		patterns = append(patterns, "./cmd/"+program)
	}
	loaded, err := load.Load(cfg, patterns...)
	if err != nil || load.PrintErrors(loaded) > 0 {
		t.Fatalf("cannot load %s: %v", patterns, err)
	}
	prog, mains := ssautil.AllPackages(loaded, ssa.InstantiateGenerics)
	prog.Build()
	all := map[string]map[string]int{}
	for _, main := range mains {
		all[strings.TrimPrefix(folder(main.Pkg.Path()), "cmd/")] = reachedLines(t, prog, main)
	}
	return all
}

// reachedLines counts the code lines, by folder, that main of a package can reach.
func reachedLines(t *testing.T, prog *ssa.Program, main *ssa.Package) map[string]int {
	t.Helper()
	roots := []*ssa.Function{main.Func("main"), main.Func("init")}
	code := map[string][]bool{} // of a file: which lines have code
	counted := map[string]map[int]bool{}
	for fn := range rta.Analyze(roots, false).Reachable {
		if fn.Origin() != nil {
			fn = fn.Origin()
		}
		if fn.Pkg == nil || fn.Syntax() == nil || !strings.HasPrefix(fn.Pkg.Pkg.Path(), module) {
			continue
		}
		begin, end := prog.Fset.Position(fn.Syntax().Pos()), prog.Fset.Position(fn.Syntax().End())
		if code[begin.Filename] == nil {
			code[begin.Filename], _ = lineKinds(read(t, begin.Filename))
			counted[begin.Filename] = map[int]bool{}
		}
		for line := begin.Line; line <= end.Line; line++ {
			if code[begin.Filename][line] {
				counted[begin.Filename][line] = true
			}
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for file, set := range counted {
		dir := strings.TrimPrefix(file, wd+"/")
		lines[dir[:max(0, strings.LastIndex(dir, "/"))]] += len(set)
	}
	return lines
}
