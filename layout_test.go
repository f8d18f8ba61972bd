package chatd

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
)

const module = "github.com/chatd/chatd"

// mayImport is the import table: which folder may use which others. What is not
// here may not be. Tests may use more.
var mayImport = map[string][]string{
	".":         {},
	"chat":      {},
	"tmux":      {},
	"stream":    {"chat"},
	"termsafe":  {},
	"printer":   {"termsafe", "quota", "chat"},
	"ring":      {},
	"sys":       {},
	"cgroup":    {"cgroupfs", "sys", "systemd", "chat"},
	"cgroupfs":  {"chat"},
	"systemd":   {"chat"},
	"netpolicy": {"sys", "chat"},
	"netns":     {"sys", "chat"},                                                // adrs/0073
	"gateway":   {"netns", "uplink", "secret", "quota", "trees", "sys", "chat"}, // adrs/0073
	"uplink":    {"secret", "sys", "chat"},                                      // adrs/0073, 0075
	"egress":    {"resolver", "uplink", "secret", "scrub", "landlock", "quota", "chat"},
	"scrub":     {},       // adrs/0075
	"secret":    {"chat"}, // adrs/0075
	"authority": {"chat"}, // adrs/0075
	"traffic":   {"chat"},
	"resolver":  {"quota", "chat"},
	"sockets":   {"sys", "chat"},
	"trees":     {"sys", "chat"},
	"account":   {"trees", "chat"},
	"homedir":   {"sys", "trees", "chat"},
	"layers":    {"sys", "chat"},
	"leftovers": {"sys", "trees"},
	"scan":      {"landlock", "sys", "chat"}, // adrs/0088
	"diskquota": {"sys", "trees", "chat"},    // adrs/0079
	"exposure":  {"sys", "chat"},
	"state":     {"chat"},
	"archive":   {"chat"},          // adrs/0081
	"archives":  {"trees", "chat"}, // adrs/0091
	"archiver":  {"archives", "session", "shims", "chat"},
	"files":     {"filerules", "chat"},
	"landlock":  {"chat"},
	"filerules": {"chat"},
	"orders":    {"sys", "chat"},
	"walls":     {"sys", "filerules", "chat"},
	"masks":     {"walls", "sys", "filerules", "chat"},
	"enforce":   {"orders", "walls", "masks", "sys", "filerules", "chat"},
	"enforcer":  {"sys", "trees", "orders", "shims", "quota", "chat"},
	"verdict":   {"walls", "filerules", "files", "chat"},
	"supervise": {"stream"},
	"termlog":   {},
	"unshare":   {"sys", "chat"},
	"shell":     {"filerules", "chat"},
	"guard":     {"filerules", "shell", "chat"},
	"schedule":  {"chat"},
	"quota":     {"chat"},
	"config":    {"filerules", "chat", "files", "journal", "quota", "secret"},
	"journal":   {},
	"listen":    {"chat"},
	"shims":     {"landlock", "files", "stream", "chat"},
	"wrapper":   {"shims", "filerules", "shell", "guard", "chat"},
	"console":   {"trees", "ring", "stream", "tmux", "chat"},
	"filecall":  {"session", "shims", "files", "sys", "chat"},
	"session": {
		"sys", "trees", "cgroup", "unshare", "tmux", "stream", "shims", "chat",
	},
	"view": {
		"session", "exposure", "homedir", "layers", "shims", "tmux", "chat",
	},
	"background": {
		"session", "supervise", "stream", "shims", "sys", "trees", "chat",
	},
	"due":    {"background", "state", "chat"},
	"idle":   {"chat"}, // adrs/0072
	"shares": {"state", "quota", "chat"},
	"policy": {
		"enforcer", "verdict", "filecall", "session", "shims", "sys", "filerules", "files", "quota",
		"chat",
	},
	"hostprobe": {
		"session", "layers", "sys", "trees", "account", "diskquota", "homedir", "netpolicy", "netns",
		"sockets", "shims", "chat",
	},
	"provision": {
		"filecall", "due", "idle", "hostprobe", "session", "gateway", "view", "layers",
		"console", "sys", "trees",
		"account", "homedir", "leftovers", "exposure", "policy", "background", "cgroup",
		"unshare", "netpolicy", "tmux", "stream", "shims", "state", "filerules", "files",
		"sockets", "shares", "secret", "authority", "quota", "traffic", "diskquota", "chat",
		"archives", "archiver", // adrs/0091
	},
	"runs": { // adrs/0039
		"broker", "fileops", "schedule", "stream", "guard", "shell", "filerules", "files", "chat",
	},
	"fileops":     {"broker", "files", "chat"}, // adrs/0046
	"broker":      {"sys", "stream", "chat", "files", "quota"},
	"api":         {"broker", "chat", "files", "quota"},
	"api/apitest": {"stream", "chat", "files", "schedule"},
	"mcp":         {"api", "chat", "files", "termsafe"},
	"front": {
		"api", "mcp", "broker", "landlock", "journal", "runs", "termsafe", "chat",
	},
	"cmd/chatd": {
		"front", "printer", "termsafe", "walls", "mcp", "api", "config", "journal", "state",
		"filerules", "shell", "guard", "files", "chat",
	},
	"cmd/chatd-root": {
		"account", "exposure", "broker", "config", "journal", "listen", "policy", "provision",
		"state", "filerules", "chat",
	},
	"cmd/chatd-shim":    {"shims", "wrapper", "supervise", "scan", "termlog"},
	"cmd/chatd-enforce": {"enforce", "chat"},
	"cmd/chatd-egress":  {"egress", "journal", "chat"},
	"cmd/chatd-archive": {"archive", "chat"},
	"examples/bridge":   {"api", "chat"},
	"test/npmtest":      {},
	"test/roottest":     {},
	"test/vagrant":      {"api", "chat"},
}

// owners are the third-party modules and the one folder that may use each; two where
// an ADR says why. golang.org/x/sys belongs to everybody who talks to the kernel.
var owners = map[string]string{
	"github.com/mattn/go-runewidth":               "termsafe",
	"go.etcd.io/bbolt":                            "state",
	"github.com/danielgtaylor/huma/v2":            "api",
	"github.com/goccy/go-yaml":                    "config filerules", // adrs/0006
	"github.com/titanous/json5":                   "filerules",
	"github.com/bmatcuk/doublestar/v4":            "filerules",
	"mvdan.cc/sh/v3":                              "shell",
	"github.com/urfave/cli/v2":                    "cmd/chatd",
	"github.com/coreos/go-systemd/v22/daemon":     "cmd/chatd-root",
	"github.com/coreos/go-systemd/v22/activation": "cmd/chatd",
	"github.com/coreos/go-systemd/v22/dbus":       "systemd",
	"github.com/godbus/dbus/v5":                   "systemd",
	"github.com/moby/sys/user":                    "account",
	"github.com/containerd/cgroups/v3":            "cgroup",
	"github.com/opencontainers/runtime-spec":      "cgroup",
	"github.com/coreos/go-iptables":               "netpolicy",
	"github.com/landlock-lsm/go-landlock":         "landlock",
	"github.com/elastic/go-seccomp-bpf":           "shims landlock", // what is refused; what is allowed
	"golang.org/x/net":                            "shims resolver", // adrs/0073
	"github.com/google/nftables":                  "netns",          // adrs/0073
	"github.com/vishvananda/netlink":              "netns",          // adrs/0073
	"github.com/creack/pty":                       "shims",
	"golang.org/x/term":                           "cmd/chatd",
	"github.com/rogpeppe/go-internal":             "cmd/chatd",
	"github.com/modelcontextprotocol/go-sdk":      "mcp",
	"github.com/google/jsonschema-go":             "mcp", // adrs/0021
	"github.com/charmbracelet/x":                  "termsafe",
	"github.com/robfig/cron/v3":                   "schedule",      // adrs/0027
	"pgregory.net/rapid":                          "test/roottest", // adrs/0086
	"golang.org/x/tools":                          ".",             // the tests of this folder alone: adrs/0039
	"filippo.io/age":                              "archive",       // adrs/0081
	"github.com/klauspost/compress":               "archive",       // adrs/0081
	"golang.org/x/sys":                            "",
}

// sides says on which side of the privilege each package is that a binary links. Pure packages
// hold words, checks and formats, and belong to every side.
var sides = map[string]string{
	"root": "provision session view background due idle policy hostprobe layers verdict enforcer " +
		"trees account homedir leftovers diskquota archives archiver exposure cgroup cgroupfs " +
		"systemd netpolicy netns gateway authority traffic sockets unshare tmux ring console " +
		"filecall state shares " +
		"listen supervise cmd/chatd-root",
	"enforce": "enforce masks walls cmd/chatd-enforce",
	"egress":  "egress resolver scrub cmd/chatd-egress",
	"front": "front api mcp guard shell schedule runs fileops termsafe " +
		"printer cmd/chatd",
	"chat": "shims landlock files wrapper termlog archive scan cmd/chatd-shim cmd/chatd-archive",
	"pure": "chat filerules quota config journal broker orders uplink secret sys stream",
}

// sideOf is the side of each binary. It links that side and pure packages.
var sideOf = map[string]string{
	"chatd-root": "root", "chatd-enforce": "enforce", "chatd-egress": "egress", "chatd-shim": "chat",
	"chatd-archive": "chat", "chatd": "front",
}

// crossings are the packages that a binary links from another side, and why. A crossing that
// is no longer needed fails the test: take it out here.
var crossings = map[string]map[string]string{
	"chatd-root": {
		"shims landlock": "provision plans the session that chatd-shim builds",
		"files":          "provision starts file tools with requests; config has their bounds",
		"walls":          "verdict checks that chatd-enforce can keep the rules",
	},
	"chatd-egress": {
		"landlock": "egress takes from itself what it does not need",
	},
	"chatd-shim": {
		"guard shell": "wrapper checks the arguments of rm, curl, sudo as a run is checked",
		"supervise":   "chatd-shim mind supervises a background run",
	},
	"chatd": {
		"state":    "audit and verify need no daemon",
		"walls":    "policy check says which rules chatd-enforce cannot keep",
		"files":    "api and mcp have the arguments and answers of the file tools",
		"landlock": "front takes from itself what it does not need",
	},
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
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
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
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		dir := folder(p.ImportPath)
		allowed, known := mayImport[dir]
		if !known {
			t.Errorf("folder %s is not in the table", dir)
		}
		if len(p.CgoFiles) > 0 {
			t.Errorf("%s uses cgo", dir)
		}
		for _, i := range p.Imports {
			switch {
			case strings.HasPrefix(i, module):
				if !slices.Contains(allowed, folder(i)) {
					t.Errorf("%s may not import %s", dir, folder(i))
				}
			case strings.Contains(strings.Split(i, "/")[0], "."):
				checkOwner(t, dir, i)
			}
		}
	}
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

// sideByFolder is the table of sides by folder.
func sideByFolder(t *testing.T) map[string]string {
	t.Helper()
	of := map[string]string{}
	for side, dirs := range sides {
		for _, dir := range strings.Fields(dirs) {
			if _, twice := of[dir]; twice {
				t.Errorf("folder %s has two sides", dir)
			}
			if _, known := mayImport[dir]; !known {
				t.Errorf("folder %s has a side, and is not in the import table", dir)
			}
			of[dir] = side
		}
	}
	return of
}

// TestSides: a binary links packages of its own side, pure ones, and what crossings names.
func TestSides(t *testing.T) {
	of := sideByFolder(t)
	for _, program := range binaries {
		crossing := map[string]bool{}
		for dirs, reason := range crossings[program] {
			for _, dir := range strings.Fields(dirs) {
				crossing[dir] = reason != ""
			}
		}
		for _, dep := range depsOf(t, "./cmd/"+program) {
			dir := folder(dep)
			switch side := of[dir]; {
			case !strings.HasPrefix(dep, module):
			case side == "":
				t.Errorf("%s links %s, which has no side: put it into the table", program, dir)
			case side == sideOf[program] || side == "pure":
			case crossing[dir]:
				delete(crossing, dir)
			default:
				t.Errorf("%s may not link %s: its side is %s", program, dir, side)
			}
		}
		for _, dir := range slices.Sorted(maps.Keys(crossing)) {
			t.Errorf("%s does not cross to %s: take it out of crossings", program, dir)
		}
	}
}

// TestShimStaysSmall keeps the root side out of the program that runs as a chat.
func TestShimStaysSmall(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/chatd-shim")
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		known := []string{"chat", "filerules", "shell", "guard", "landlock", "files", "shims",
			"wrapper", "stream", "supervise", "scan", "sys", "termlog", "cmd/chatd-shim"}
		own := strings.HasPrefix(dep, module)
		if own && !slices.Contains(known, folder(dep)) || dep == "net/http" {
			t.Errorf("chatd-shim depends on %s", dep)
		}
	}
}

// TestPackageDocs wants every package to say what it does not stop.
func TestPackageDocs(t *testing.T) {
	for dir := range mayImport {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		var docs string
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			docs += f.Doc.Text()
		}
		if !strings.Contains(docs, "# What it does not stop") {
			t.Errorf("the package doc of %s has no heading \"What it does not stop\"", dir)
		}
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
		if forbidden.MatchString(strings.TrimSuffix(filepath.Base(path), ".go")) {
			t.Errorf("%s: a file of that name holds anything", path)
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
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
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
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
