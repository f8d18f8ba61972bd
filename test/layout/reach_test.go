package layout

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/callgraph/rta"
	load "golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestEnforceStaysSmall measures what is reachable from chatd-enforce's main, by rapid type
// analysis: an upper bound, for every method of a type that becomes an interface counts. A feature
// lives in a program without privilege, or pays with lines that go.
func TestEnforceStaysSmall(t *testing.T) { staysSmall(t, "chatd-enforce", "enforce", 1000) }

// TestRootStaysSmall measures chatd-root as TestEnforceStaysSmall does the enforcer.
func TestRootStaysSmall(t *testing.T) { staysSmall(t, "chatd-root", "provision", 2000) }

// staysSmall compares the own lines that a program reaches with their total. Fewer than least of
// its main folder show that the measure is broken.
func staysSmall(t *testing.T, program, folder string, least int) {
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
	isTotal(t, "lines that "+program+" reaches", total)
}

// TestRootLinksLittle keeps what reads callers' requests out of chatd-root.
func TestRootLinksLittle(t *testing.T) {
	deps := depsOf(t, "./cmd/chatd-root")
	expect.True(t, slices.Contains(deps, module+"/provision"),
		"chatd-root does not link provision: %s", deps)
	for _, dep := range deps {
		if slices.Contains([]string{"client", "front/api", "front/mcp", "internal/termsafe", "front", "front/runs", "internal/guard", "internal/shell", "front/schedule", "shims/archive", "cmd/chatd"}, folder(dep)) {
			t.Errorf("chatd-root links %s", dep)
		}
	}
	linksNone(t, "chatd-root", deps,
		"net/http", "crypto/tls", "github.com/danielgtaylor/huma", "github.com/modelcontextprotocol", "github.com/google/jsonschema-go",
		"github.com/urfave/cli", "github.com/charmbracelet/x", "mvdan.cc/sh", "github.com/robfig/cron", "time/tzdata", "database/sql",
		"filippo.io/age", "github.com/klauspost/compress", "github.com/goccy/go-yaml", "github.com/titanous/json5",
		module+"/filerules/rulefile", module+"/internal/config/configfile")
}

// depsOf are the packages that a program links.
func depsOf(t *testing.T, program string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", program)
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	return strings.Fields(string(must.Get(cmd.Output())(t)))
}

// linksNone wants none of these packages, or of one below them, among what a program links.
func linksNone(t *testing.T, program string, deps []string, packages ...string) {
	t.Helper()
	for _, dep := range deps {
		for _, not := range packages {
			expect.True(t, dep != not && !strings.HasPrefix(dep, not+"/"), "%s links %s", program, dep)
		}
	}
}

// TestEnforceLinksLittle keeps what reads callers' and chats' text out of chatd-enforce.
func TestEnforceLinksLittle(t *testing.T) {
	deps := depsOf(t, "./cmd/chatd-enforce")
	expect.True(t, slices.Contains(deps, module+"/enforce"),
		"chatd-enforce does not link enforce: %s", deps)
	for _, dep := range deps {
		if strings.HasPrefix(dep, module) && !slices.Contains([]string{
			"chat", "filerules", "enforce", "enforce/pathclass", "enforce/masks", "internal/orders", "internal/sys", "cmd/chatd-enforce",
		}, folder(dep)) {
			t.Errorf("chatd-enforce links %s", dep)
		}
	}
	linksNone(t, "chatd-enforce", deps,
		"net/http", "crypto/tls", "github.com/danielgtaylor/huma", "github.com/modelcontextprotocol", "github.com/urfave/cli", "mvdan.cc/sh",
		"github.com/robfig/cron", "github.com/charmbracelet/x", "go.etcd.io/bbolt", "github.com/godbus", "github.com/containerd", "database/sql",
		"github.com/goccy/go-yaml", "github.com/titanous/json5")
}

// binaries are the six programs: their folders below cmd.
var binaries = []string{
	"chatd-root", "chatd-enforce", "chatd-egress", "chatd-shim", "chatd-archive", "chatd",
}

// reachOf is what each program reaches: they are loaded once, together.
var reachOf map[string]map[string]int

// reachable counts the code lines, by folder, of this module's functions that main of a
// program can reach.
func reachable(t *testing.T, program string) map[string]int {
	t.Helper()
	if reachOf == nil {
		reachOf = reachAll(t)
	}
	must.True(t, reachOf[program] != nil, "cannot measure %s: the programs could not be loaded", program)
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
	must.True(t, err == nil && load.PrintErrors(loaded) <= 0, "cannot load %s: %v", patterns, err)
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
	wd := must.Get(os.Getwd())(t)
	lines := map[string]int{}
	for file, set := range counted {
		dir := strings.TrimPrefix(file, wd+"/")
		lines[dir[:max(0, strings.LastIndex(dir, "/"))]] += len(set)
	}
	return lines
}
