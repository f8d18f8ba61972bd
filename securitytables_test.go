package chatd

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated parts of the pages")

// binary is what a page says of a program that cannot be measured.
type binary struct {
	runsAs, reads string

	// order is the reading order of its packages: those that decide about a wall come first.
	// Packages that are not in it follow by their names.
	order string
}

var described = map[string]binary{
	"chatd-root": {
		runsAs: "root. `chatd serve` becomes it.",
		reads: "its config and the files of rules, both root's; its records; messages of the " +
			"front (JSON, 16 MiB at most); reports of `chatd-shim` (JSON, 64 KiB at most); " +
			"bytes of a chat, as listed above.",
		order: "provision session view background due idle policy hostprobe layers enforcer cgroup " +
			"cgroupfs systemd netpolicy netns gateway uplink unshare sockets shims landlock tmux broker cmd/chatd-root " +
			"listen state config filerules walls orders supervise sys files shares quota chat console " +
			"filecall ring journal",
	},
	"chatd-enforce": {
		runsAs: "root, where a profile has file rules. It goes on while chatd-root is down.",
		reads: "orders of chatd-root (JSON, on a socket in a directory of root's); the " +
			"kernel's fanotify events and mount tables; names in the chats' trees, never " +
			"what a file holds.",
		order: "enforce walls masks orders filerules sys chat cmd/chatd-enforce",
	},
	"chatd-egress": {
		runsAs: "user `chatd-egress`, without a capability, a file or a network, where a profile " +
			"has a network of its own. It goes on while chatd-root is down.",
		reads: "what chats send and the internet answers: DNS, the first record of TLS, HTTP " +
			"requests, bytes; calls and answers of chatd-root (JSON, 128 KiB at most).",
		order: "egress resolver uplink chat cmd/chatd-egress",
	},
	"chatd-shim": {
		runsAs: "the chat. `chatd-shim mind` is root until its `nsenter` runs, then a uid that " +
			"owns nothing. `chatd-shim scan` is such a uid, with CAP_DAC_READ_SEARCH.",
		reads: "the plan of the session and calls of file tools, both from chatd-root; the " +
			"chat's files and the arguments of the programs it stands for. A supervisor " +
			"copies bytes and parses none. A scan reads names of files.",
		order: "shims landlock supervise files filerules wrapper guard shell chat cmd/chatd-shim",
	},
	"chatd-archive": {
		runsAs: "the chat; it refuses to run as root. chatd-root starts it in a one-shot session.",
		reads: "the home of a chat, and archives of one: names, links, attributes, bytes; age " +
			"recipients and identities.",
		order: "archive cmd/chatd-archive chat",
	},
	"chatd": {
		runsAs: "user `chatd` without a capability as the front (`chatd front`); the user who " +
			"calls it as the command line.",
		reads: "as the front: HTTP, JSON and MCP of callers, and what chats print; as the " +
			"command line: its arguments and the answers of the front; as root for `chatd backup`, " +
			"`restore` and `audit`: the state, and an archive.",
		order: "front api broker mcp termsafe printer cmd/chatd backup config quota files filerules guard shell " +
			"chat journal",
	},
}

// tableBegin and tableEnd enclose the generated part of SECURITY.md.
const (
	tableBegin = "<!-- generated: tables of the binaries, by go generate -->\n"
	tableEnd   = "<!-- end of the generated part -->\n"
)

// TestSecurityTables holds the tables of the binaries in SECURITY.md to the code. A figure may
// be 10 % and 50 lines off, so that a small change does not make the page stale.
func TestSecurityTables(t *testing.T) {
	text := page(t, "SECURITY.md")
	before, rest, begins := strings.Cut(text, tableBegin)
	was, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("cannot find %q and %q in SECURITY.md", tableBegin, tableEnd)
	}
	var is strings.Builder
	for _, program := range binaries {
		writeBinary(t, &is, program)
	}
	is.WriteString("\n")
	if *update {
		writePage(t, "SECURITY.md", before+tableBegin+is.String()+tableEnd+after)
	} else if difference := stale(was, is.String()); difference != "" {
		t.Errorf("SECURITY.md is stale: %s\nwrite it anew: go generate .", difference)
	}
}

func writePage(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// figure is a count of lines: in a row or in the sentence above the rows.
var figure = regexp.MustCompile(`(\| |Reaches )\d[\d,]*`)

// stale is the first line in which two texts differ, figures that are close aside.
func stale(was, is string) string {
	wasLines, isLines := strings.Split(was, "\n"), strings.Split(is, "\n")
	for i := range max(len(wasLines), len(isLines)) {
		old, now := at(wasLines, i), at(isLines, i)
		if figure.ReplaceAllString(old, "N") != figure.ReplaceAllString(now, "N") {
			return fmt.Sprintf("it has %q, want %q", old, now)
		}
		wasFigures, isFigures := figure.FindAllString(old, -1), figure.FindAllString(now, -1)
		for j := range isFigures {
			a, b := number(wasFigures[j]), number(isFigures[j])
			if math.Abs(a-b) > max(50, 0.1*b) {
				return fmt.Sprintf("it has %q, want %q", old, now)
			}
		}
	}
	return ""
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// number is the count in a figure.
func number(figure string) (n float64) {
	for _, r := range figure {
		if r >= '0' && r <= '9' {
			n = 10*n + float64(r-'0')
		}
	}
	return n
}

// TestStale: figures may be a little off, and nothing else may.
func TestStale(t *testing.T) {
	const row = "| 3 | unshare | root | 1,000 |\n"
	for text, want := range map[string]bool{
		row: false, strings.Replace(row, "1,000", "1,090", 1): false,
		strings.Replace(row, "1,000", "1,190", 1): true,
		strings.Replace(row, "root", "front", 1):  true,
		row + row:                                 true, "": true,
	} {
		if got := stale(row, text) != ""; got != want {
			t.Errorf("stale(%q, %q) = %v, want %v", row, text, got, want)
		}
	}
}

// writeBinary writes what a program is, its packages in reading order, and its modules.
func writeBinary(t *testing.T, out io.Writer, program string) {
	t.Helper()
	about, lines, of := described[program], reachable(t, program), sideByFolder(t)
	deps := linked(t, program)
	var own []string
	total := 0
	for _, p := range deps {
		if strings.HasPrefix(p.ImportPath, module) {
			own = append(own, folder(p.ImportPath))
			total += lines[folder(p.ImportPath)]
		}
	}
	slices.SortFunc(own, inOrder(strings.Fields(about.order)))
	fmt.Fprintf(out, "\n### %s\n\n%s%s", program,
		wrapped("- Runs as: "+about.runsAs), wrapped("- Reads: "+about.reads))
	fmt.Fprintf(out, "- Reaches %s own lines from main, in %d packages, in reading order:\n\n",
		rounded(total), len(own))
	fmt.Fprint(out, "| package | side | lines |\n|---|---|---|\n")
	for _, dir := range own {
		fmt.Fprintf(out, "| %s | %s | %s |\n", dir, of[dir], rounded(lines[dir]))
	}
	writeCrossings(out, program)
	fmt.Fprint(out, "\n| owner | third-party modules |\n|---|---|\n")
	modules := modulesOf(deps)
	for _, owner := range slices.Sorted(maps.Keys(modules)) {
		slices.Sort(modules[owner])
		fmt.Fprintf(out, "| %s | %s |\n", owner, strings.Join(modules[owner], ", "))
	}
}

// writeCrossings says why a program links packages of another side.
func writeCrossings(out io.Writer, program string) {
	if len(crossings[program]) == 0 {
		return
	}
	fmt.Fprint(out, "\nPackages of another side, and why:\n\n")
	for _, dirs := range slices.Sorted(maps.Keys(crossings[program])) {
		names := strings.Join(strings.Fields(dirs), ", ")
		fmt.Fprint(out, wrapped("- "+names+": "+crossings[program][dirs]))
	}
}

// wrapped is an item of a list in lines of at most maxColumns.
func wrapped(item string) string {
	var lines []string
	for _, word := range strings.Fields(item) {
		last := len(lines) - 1
		switch {
		case last < 0:
			lines = append(lines, word)
		case len(lines[last])+1+len(word) > maxColumns:
			lines = append(lines, "  "+word)
		default:
			lines[last] += " " + word
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// rounded is a count to the nearest ten: what is under ten stays.
func rounded(n int) string {
	if n < 10 {
		return strconv.Itoa(n)
	}
	return thousands((n + 5) / 10 * 10)
}

// inOrder compares folders by their place in a list; those that are not in it come last.
func inOrder(order []string) func(a, b string) int {
	place := func(dir string) int {
		if i := slices.Index(order, dir); i >= 0 {
			return i
		}
		return len(order)
	}
	return func(a, b string) int {
		if place(a) != place(b) {
			return place(a) - place(b)
		}
		return strings.Compare(a, b)
	}
}

// dependency is a package that a program links.
type dependency struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     struct{ Path string }
}

func linked(t *testing.T, program string) []dependency {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Module",
		"./cmd/"+program)
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []dependency
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p dependency
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if !p.Standard {
			all = append(all, p)
		}
	}
}

// modulesOf are the third-party modules of some packages, by the folders that own them.
func modulesOf(deps []dependency) map[string][]string {
	modules := map[string]string{}
	for _, p := range deps {
		modules[p.ImportPath] = p.Module.Path
	}
	users := map[string][]string{}
	for _, p := range deps {
		user := folder(p.ImportPath)
		if p.Module.Path != module {
			user = p.Module.Path
		}
		for _, i := range p.Imports {
			used := modules[i]
			if used == "" || used == module || used == p.Module.Path {
				continue
			}
			if !slices.Contains(users[used], user) {
				users[used] = append(users[used], user)
			}
		}
	}
	owned := map[string][]string{}
	for name, by := range users {
		owned[owner(name, by)] = append(owned[owner(name, by)], shortModule(name))
	}
	return owned
}

// owner names the folders that import a module: TestImports holds them to the table of owners.
// A module that no folder imports comes with those that do.
func owner(name string, by []string) string {
	if name == "golang.org/x/sys" {
		return "any"
	}
	by = slices.Sorted(slices.Values(by))
	var own []string
	for _, user := range by {
		if _, ours := mayImport[user]; ours {
			own = append(own, user)
		}
	}
	if len(own) > 0 {
		return strings.Join(own, ", ")
	}
	for i, user := range by {
		by[i] = shortModule(user)
	}
	return "comes with " + strings.Join(by, ", ")
}

// shortModule is a module's name without its host and version.
func shortModule(name string) string {
	dir, last := path.Split(name)
	if regexp.MustCompile(`^v\d+$`).MatchString(last) {
		name = path.Clean(dir)
	}
	return strings.TrimPrefix(name, "github.com/")
}
