package layout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const module = "github.com/chatd/chatd"

// owners are the third-party modules and the one folder that may use each; two where
// an ADR says why. golang.org/x/sys belongs to everybody who talks to the kernel.
var owners = map[string]string{
	"github.com/mattn/go-runewidth":               "internal/termsafe",
	"go.etcd.io/bbolt":                            "state",
	"github.com/danielgtaylor/huma/v2":            "front/api",
	"github.com/goccy/go-yaml":                    "internal/config/configfile filerules/rulefile", // adrs/0006
	"github.com/titanous/json5":                   "filerules/rulefile",
	"mvdan.cc/sh/v3":                              "internal/shell",
	"github.com/urfave/cli/v2":                    "cmd/chatd",
	"github.com/coreos/go-systemd/v22/daemon":     "cmd/chatd-root",
	"github.com/coreos/go-systemd/v22/activation": "cmd/chatd",
	"github.com/coreos/go-systemd/v22/dbus":       "cgroup/systemd",
	"github.com/godbus/dbus/v5":                   "cgroup/systemd",
	"github.com/moby/sys/user":                    "provision/account",
	"github.com/containerd/cgroups/v3":            "cgroup",
	"github.com/coreos/go-iptables":               "netpolicy",
	"github.com/landlock-lsm/go-landlock":         "landlock",
	"github.com/elastic/go-seccomp-bpf":           "shims landlock",        // what is refused; what is allowed
	"golang.org/x/net":                            "shims egress/resolver", // adrs/0073
	"github.com/google/nftables":                  "netpolicy/netns",       // adrs/0073
	"github.com/vishvananda/netlink":              "netpolicy/netns",       // adrs/0073
	"github.com/creack/pty":                       "shims",
	"golang.org/x/term":                           "cmd/chatd",
	"github.com/rogpeppe/go-internal":             "cmd/chatd",
	"github.com/modelcontextprotocol/go-sdk":      "front/mcp",
	"github.com/google/jsonschema-go":             "front/mcp", // adrs/0021
	"github.com/charmbracelet/x":                  "internal/termsafe",
	"github.com/robfig/cron/v3":                   "front/schedule", // adrs/0027
	"pgregory.net/rapid":                          "test/roottest",  // adrs/0086
	"golang.org/x/tools":                          "test/layout",    // adrs/0039
	"filippo.io/age":                              "shims/archive",  // adrs/0081
	"github.com/klauspost/compress":               "shims/archive",  // adrs/0081
	"golang.org/x/sys":                            "",
}

// sides says on which side of the privilege the packages of a folder are. Pure packages hold
// words, checks and formats, and belong to every side. A program's is in sideOf.
var sides = map[string]string{
	"provision": "root", "cgroup": "root", "netpolicy": "root", "state": "root", "tmux": "root",
	"enforce": "enforce", "egress": "egress", "front": "front", "examples": "front", "shims": "chat",
	"chat": "pure", "client": "pure", "filerules": "pure", "landlock": "pure", "internal": "pure",
	"test": "test",
}

// sideOf is the side of each binary.
var sideOf = map[string]string{
	"chatd-root": "root", "chatd-enforce": "enforce", "chatd-egress": "egress", "chatd-shim": "chat",
	"chatd-archive": "chat", "chatd": "front",
}

// crossings are the packages that packages of another side import, and why: the importing
// package, or the side of several, then what it imports. A crossing that is no longer needed fails
// the test: take it out here.
var crossings = map[string]string{
	"root enforce/pathclass":        "policy checks that chatd-enforce can keep the rules",
	"front/api/apitest shims/files": "the API in memory executes file tools in its own process",
	"cmd/chatd state":               "audit and verify need no daemon",
}

type listedPackage struct {
	ImportPath string
	Doc        string
	CgoFiles   []string
	Imports    []string
}

// packages lists every package of the repository as linux builds it.
func packages(t *testing.T) []listedPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,CgoFiles,Imports", "./...")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOFLAGS=-buildvcs=false")
	out, err := cmd.Output()
	must.True(t, err == nil, "go list: %v", err)
	var all []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func folder(importPath string) string {
	return strings.TrimPrefix(importPath, module+"/")
}

// sideOfFolder is a package's side: that of the first folder, or of the program.
func sideOfFolder(dir string) string {
	first, rest, _ := strings.Cut(dir, "/")
	if first == "cmd" {
		return sideOf[rest]
	}
	return sides[first]
}

// TestImports: a package imports its own side, pure packages, and what crossings names; and of
// third parties only the modules that it owns.
func TestImports(t *testing.T) {
	unused := maps.Clone(crossings)
	for _, p := range packages(t) {
		dir := folder(p.ImportPath)
		expect.True(t, sideOfFolder(dir) != "", "folder %s has no side", dir)
		expect.True(t, len(p.CgoFiles) == 0, "%s uses cgo", dir)
		for _, i := range p.Imports {
			switch {
			case strings.HasPrefix(i, module):
				checkSide(t, dir, folder(i), unused)
			case strings.Contains(strings.Split(i, "/")[0], "."):
				checkOwner(t, dir, i)
			}
		}
	}
	for _, crossing := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("nothing crosses as %q says: take it out of crossings", crossing)
	}
}

// checkSide checks one import, and takes the crossing that it needs out of unused.
func checkSide(t *testing.T, dir, imported string, unused map[string]string) {
	t.Helper()
	from, to := sideOfFolder(dir), sideOfFolder(imported)
	if to == from || to == "pure" {
		return
	}
	for _, crossing := range []string{dir + " " + imported, from + " " + imported} {
		if crossings[crossing] != "" {
			delete(unused, crossing)
			return
		}
	}
	t.Errorf("%s is of side %q and may not import %s of side %q", dir, from, imported, to)
}

func checkOwner(t *testing.T, dir, path string) {
	for mod, owner := range owners {
		if path == mod || strings.HasPrefix(path, mod+"/") {
			if owner != "" && !slices.Contains(strings.Fields(owner), dir) {
				t.Errorf("%s may not import %s: it belongs to %s", dir, path, owner)
			}
			return
		}
	}
	t.Errorf("%s imports %s, which has no owner", dir, path)
}

// TestSides: a binary links packages of its own side, pure ones, and those of another side only by
// a crossing.
func TestSides(t *testing.T) {
	crossed := map[string]bool{}
	for crossing := range crossings {
		_, to, _ := strings.Cut(crossing, " ")
		crossed[to] = true
	}
	for _, program := range binaries {
		for _, dep := range depsOf(t, "./cmd/"+program) {
			dir := folder(dep)
			if side := sideOfFolder(dir); strings.HasPrefix(dep, module) && side != sideOf[program] &&
				side != "pure" && !crossed[dir] {
				t.Errorf("%s may not link %s: its side is %s", program, dir, side)
			}
		}
	}
}

// TestShimStaysSmall keeps the root side out of the program that runs as a chat.
func TestShimStaysSmall(t *testing.T) {
	for _, dep := range depsOf(t, "./cmd/chatd-shim") {
		known := []string{"chat", "filerules", "internal/shell", "internal/guard", "landlock", "internal/filewire", "internal/plan", "shims/files", "shims",
			"shims/wrapper", "internal/stream", "shims/supervise", "shims/scan", "internal/sys", "shims/termlog", "cmd/chatd-shim"}
		own := strings.HasPrefix(dep, module)
		if own && !slices.Contains(known, folder(dep)) || dep == "net/http" {
			t.Errorf("chatd-shim depends on %s", dep)
		}
	}
}

// TestPackageDocs wants every package to say what it does not stop.
func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		dir := folder(p.ImportPath)
		var docs string
		for _, path := range must.Get(filepath.Glob(dir + "/*.go"))(t) {
			if !strings.HasSuffix(path, "_test.go") {
				const mode = parser.ParseComments | parser.PackageClauseOnly
				docs += must.Get(parser.ParseFile(token.NewFileSet(), path, nil, mode))(t).Doc.Text()
			}
		}
		expect.True(t, strings.Contains(docs, "# What it does not stop"),
			"the package doc of %s has no heading \"What it does not stop\"", dir)
	}
}

// forbidden are words that this project has better ones for, and catch-all names.
var forbidden = regexp.MustCompile(`(?i)^(util|utils|common|helpers?|misc|sandbox\w*|tenant\w*|destroy\w*|spawn\w*)$`)

// maxLines bounds a file. Tests may have more: their tables and worlds stand together.
const maxLines = 300

// TestStyle holds files to maxLines, functions to 80, exported names to a doc comment and
// identifiers and files to the project's words.
func TestStyle(t *testing.T) {
	fset, elsewhere := token.NewFileSet(), documentedElsewhere(t)
	for _, path := range goFiles(t) {
		expect.True(t, !forbidden.MatchString(strings.TrimSuffix(filepath.Base(path), ".go")),
			"%s: a file of that name holds anything", path)
		f := must.Get(parser.ParseFile(fset, path, nil, parser.ParseComments))(t)
		checkFile(t, fset, path, f, elsewhere)
	}
}

// asserted matches "var _ Interface = (*Type)(nil)".
var asserted = regexp.MustCompile(`(?m)^var _ \S+ = \(\*(\w+)\)\(nil\)`)

// documentedElsewhere returns the methods, as folder.Type.Method, that need no comment: their type
// is asserted to implement an interface, and an interface documents a method of that name.
func documentedElsewhere(t *testing.T) func(path string, fn *ast.FuncDecl) bool {
	types, methods := map[string]bool{}, map[string]bool{}
	for _, path := range goFiles(t) {
		for _, m := range asserted.FindAllSubmatch(read(t, path), -1) {
			types[filepath.Dir(path)+"."+string(m[1])] = true
		}
		f := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments))(t)
		ast.Inspect(f, func(n ast.Node) bool {
			if in, ok := n.(*ast.InterfaceType); ok {
				for _, m := range in.Methods.List {
					if m.Doc != nil && len(m.Names) == 1 {
						methods[m.Names[0].Name] = true
					}
				}
			}
			return true
		})
	}
	return func(path string, fn *ast.FuncDecl) bool {
		return types[filepath.Dir(path)+"."+receiver(fn)] && methods[fn.Name.Name]
	}
}

func checkFile(
	t *testing.T, fset *token.FileSet, path string, f *ast.File,
	elsewhere func(string, *ast.FuncDecl) bool,
) {
	if lines := fset.Position(f.FileEnd).Line; lines > maxLines && !strings.HasSuffix(path, "_test.go") {
		t.Errorf("%s has %d lines, want at most %d: split it by what it is about", path, lines, maxLines)
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		at := fset.Position(fn.Pos())
		if lines := fset.Position(fn.End()).Line - at.Line + 1; lines > 80 {
			t.Errorf("%s: %s has %d lines, want at most 80", at, fn.Name.Name, lines)
		}
		if !strings.HasSuffix(path, "_test.go") && fn.Name.IsExported() && fn.Doc == nil &&
			!isMethodOfHidden(fn) && !elsewhere(path, fn) {
			t.Errorf("%s: exported %s has no doc comment", at, fn.Name.Name)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		for _, id := range declared(n) {
			if forbidden.MatchString(id.Name) {
				t.Errorf("%s: the word %s is not this project's", fset.Position(id.Pos()), id.Name)
			}
		}
		return true
	})
}

// declared are the names that a node gives to things.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	}
	return nil
}

// isMethodOfHidden reports a method of an unexported type, which no reader of
// the documentation sees.
func isMethodOfHidden(fn *ast.FuncDecl) bool {
	return fn.Recv != nil && !ast.IsExported(receiver(fn))
}

// receiver is the name of the type that a method belongs to; empty for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
		return fmt.Sprint(star.X)
	}
	return fmt.Sprint(fn.Recv.List[0].Type)
}
