package enforce

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/shell"
)

// TestDifferentialTools asks the same random rules and trees of everybody: an oracle
// that reads no rules, explain, the five file tools in a session, and the kernel.
// Explain agrees with the oracle; no tool does what explain denies, nor refuses by a
// rule what it allows; nothing opens what the bash verdict denies. With the check of
// the tools or with the enforcer switched off something of each kind of rule gets through.
//
// CHATD_TEST_RULES is how many rule sets; 60 without it, and half of that with -short.
func TestDifferentialTools(t *testing.T) {
	rounds, enough := 60, true
	if testing.Short() {
		rounds = 30
	}
	if n, err := strconv.Atoi(os.Getenv("CHATD_TEST_RULES")); err == nil {
		rounds, enough = n, n >= 60
	}
	for _, tt := range []struct {
		name          string
		checked, kept bool
	}{{"all", true, true}, {"no check", false, true}, {"no enforcer", true, false}, {"none", false, false}} {
		t.Run(tt.name, func(t *testing.T) {
			d := toolDiffer{differ: differ{inside: newInside(t, !tt.kept, !tt.kept)}, checked: tt.checked, kept: tt.kept}
			d.through = map[[2]string]int{}
			for i := range rounds {
				// Each round begins alike, whatever got through before.
				d.rand = rand.New(rand.NewPCG(3, uint64(i)))
				d.round(t)
			}
			d.report(t, enough)
		})
	}
}

// toolDiffer counts, by kind of rule and operation, what the policy denies and gets through.
type toolDiffer struct {
	differ
	checked, kept         bool
	fresh                 bool // nothing was moved: what a file was called before closes nothing
	text                  string
	rules                 oracle
	answers, calls, opens int
	deniedCalls           int
	stricter, aliased     int
	litter                int
	through               map[[2]string]int
}

// toolOps are the tools in the order in which they run, with what the rules call it.
var toolOps = []struct {
	tool files.Tool
	op   string
}{{files.ReadFileTool, "read"}, {files.ListDirTool, "read"}, {files.EditFileTool, "edit"}, {files.AppendFileTool, "write"}, {files.WriteFileTool, "write"}}

func (d *toolDiffer) round(t *testing.T) {
	root := filepath.Join(d.home, "t")
	must(t, os.RemoveAll(root))
	d.forget(t)
	d.tree(t, root, 0)
	d.text, d.rules = randomRules(d.rand, d.home)
	d.explains(t, d.names(t, root))
	if _, err := d.hold(d.text); err != nil {
		if !strings.Contains(err.Error(), "cannot keep rule") {
			t.Fatalf("%v\n%s", err, d.text)
		}
		d.refused++
		return
	}
	d.sets++
	d.fresh = true
	d.all(t, root)
	d.later(t, root)
	d.fresh = false
	d.all(t, root)
}

// all asks everybody about the tree as it is.
func (d *toolDiffer) all(t *testing.T, root string) {
	names := d.names(t, root)
	d.explains(t, names)
	d.kernel(t, names)
	for _, u := range toolOps {
		d.tool(t, root, u.tool, u.op, d.some(d.names(t, root)))
	}
}

// names are all paths of the tree, and in each directory, and beyond each link, some
// that are not there.
func (d *toolDiffer) names(t *testing.T, root string) (names []string) {
	must(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		names = append(names, p)
		if err == nil && !e.Type().IsRegular() {
			names = append(names, filepath.Join(p, d.word()), filepath.Join(p, "to-be", d.word()))
		}
		return err
	}))
	return names
}

// some are at most twelve of them, each spelled in one of several ways.
func (d *toolDiffer) some(names []string) (out []string) {
	for _, i := range d.rand.Perm(len(names))[:min(12, len(names))] {
		dir, base := filepath.Split(names[i])
		rel := strings.TrimPrefix(names[i], d.home+"/")
		out = append(out, []string{names[i], rel, dir + "./" + base, "t/../" + rel, dir + "/" + base}[d.rand.IntN(5)])
	}
	return out
}

// fold is what the spellings of some are a name for.
func (d *toolDiffer) fold(p string) string {
	if !filepath.IsAbs(p) {
		p = filepath.Join(d.home, p)
	}
	return filepath.Clean(p)
}

func (d *toolDiffer) fail(t *testing.T, p, format string, args ...any) {
	t.Helper()
	t.Errorf("%s: %s by rules\n%s", strings.TrimPrefix(p, d.home), fmt.Sprintf(format, args...), d.text)
}

// explain compiles the rules for the tree as it is now, as chatd explain does.
func (d *toolDiffer) explain(t *testing.T) *filerules.Ruleset {
	policy, err := filerules.Load("rules.yaml", []byte(d.text))
	must(t, err)
	rs, err := policy.For(filerules.Scope{Home: d.home, Resolve: filerules.Physical})
	must(t, err)
	return rs
}

// explains compares explain with the oracle, for a path and for a command.
func (d *toolDiffer) explains(t *testing.T, names []string) {
	rs, links := d.explain(t), linksOf(names)
	for _, p := range names {
		if leadsTo(p) == "" {
			continue // a circle: explain may say either, and nobody gets anywhere
		}
		var v filerules.Verdict
		for _, op := range []string{"read", "write", "edit", "bash"} {
			v = d.verdict(t, rs, p, op)
			d.answers++
			want := d.rules.denies(p, op)
			switch {
			case v.Denied() && want == nil && d.rules.deniesAlias(p, op, links):
			case v.Denied() != (want != nil):
				d.fail(t, p, "explain says %+v for %s, the oracle %+v; it leads to %s", v, op, want, leadsTo(p))
			case v.Denied() && !d.rules.named(v, op) && !d.rules.deniesAlias(p, op, links):
				d.fail(t, p, "explain names %s for %s of %s", v.Rule, op, v.Name)
			}
		}
		command, err := shell.CheckCommand(rs, "cat '"+p+"'")
		must(t, err)
		if held := d.held(t, rs, p, "bash"); command.Denied() != held.Denied() {
			d.fail(t, p, "explain says %s for bash, %s for a command", held.Effect, command.Effect)
		}
	}
}

func (d *toolDiffer) verdict(t *testing.T, rs *filerules.Ruleset, p, op string) filerules.Verdict {
	o, err := filerules.ParseOp(op)
	must(t, err)
	v, err := rs.Check(p, o)
	must(t, err)
	return v
}

func linksOf(names []string) (links []string) {
	for _, p := range names {
		if _, err := os.Readlink(p); err == nil {
			links = append(links, p)
		}
	}
	return links
}

// kernel opens the names as a command of the session. It goes by where links lead.
func (d *toolDiffer) kernel(t *testing.T, names []string) {
	for i, got := range d.try(t, names) {
		d.opens++
		real := leadsTo(names[i])
		rule, passed := d.rules.decides(real, "bash"), got.Read || got.Write
		if rule == nil && got.Write {
			rule, passed = d.rules.decides(real, "write"), true
		}
		if rule == nil || !passed {
			continue
		}
		d.through[[2]string{rule.kind, "bash"}]++
		if d.kept {
			d.fail(t, names[i], "the kernel lets %+v through", got)
		}
	}
}

// tool has one tool do all the paths, and looks at what it says and what it changed.
func (d *toolDiffer) tool(t *testing.T, root string, tool files.Tool, op string, paths []string) {
	want := make([]*oracleRule, len(paths)) // before anything changes
	explained := make([]filerules.Verdict, len(paths))
	rs := d.explain(t)
	for i, p := range paths {
		want[i], explained[i] = d.stops(d.fold(p), op), d.verdict(t, rs, d.fold(p), op)
		if read := d.verdict(t, rs, d.fold(p), "read"); op == "edit" && read.Denied() {
			explained[i] = read
		}
	}
	before := contents(t, root)
	for i, did := range d.use(t, toolRun{Home: d.home, Rules: d.text, Checked: d.checked, Tool: tool, Paths: paths}) {
		d.calls++
		// What the run made may give a later path another meaning.
		rule := want[i]
		if now := d.stops(d.fold(paths[i]), op); (now == nil) != (rule == nil) {
			continue
		}
		switch {
		case rule != nil && did.Done:
			d.through[[2]string{rule.kind, op}]++
			if d.checked {
				d.fail(t, paths[i], "%s did it against %s", tool, rule.text)
			}
		case rule == nil && did.ByRule && !explained[i].Denied():
			d.fail(t, paths[i], "%s refuses: %s; it leads to %s", tool, did.Error, leadsTo(d.fold(paths[i])))
		case d.checked && rule == nil && did.Done && explained[i].Denied() && leadsTo(d.fold(paths[i])) != "":
			d.fail(t, paths[i], "%s did it, and explain denies it by %s", tool, explained[i].Rule)
		case rule == nil && did.ByRule:
			d.aliased++ // by a deny whose own pattern leads through a link: specs/0003
		case rule == nil && did.ByKernel:
			d.stricter++
			if v := d.held(t, rs, d.fold(paths[i]), op); d.fresh && d.kept && d.checked && !v.Denied() && exists(leadsTo(d.fold(paths[i]))) {
				d.fail(t, paths[i], "%s is refused: %s; explain allows it", tool, did.Error)
			}
		}
		if rule != nil {
			d.deniedCalls++
		}
	}
	d.changed(t, before, contents(t, root), tool, op)
}

// held is explain's answer: by the rules, and by what the kernel makes of them.
func (d *toolDiffer) held(t *testing.T, rs *filerules.Ruleset, p, op string) filerules.Verdict {
	o, err := filerules.ParseOp(op)
	must(t, err)
	v, err := rs.Verdict(p, o)
	must(t, err)
	return v
}

// stops is the rule that keeps a tool from op: an edit is a read, too.
func (d *toolDiffer) stops(p, op string) *oracleRule {
	if rule := d.rules.denies(p, op); rule != nil || op != "edit" {
		return rule
	}
	return d.rules.denies(p, "read")
}

// changed goes by what is in the tree, not by what a tool says of itself.
func (d *toolDiffer) changed(t *testing.T, before, after map[string]string, tool files.Tool, op string) {
	for p, now := range after {
		was, there := before[p]
		if there && was == now {
			continue
		}
		if strings.HasPrefix(was, "->") || op == "read" {
			d.fail(t, p, "%s made %q of %q", tool, now, was)
		}
		if !there && now == "" {
			d.litter++ // made, and then the kernel did not let it be opened
			if d.checked {
				d.fail(t, p, "%s left an empty file", tool)
			}
			continue
		}
		if rule := d.rules.decides(p, op); rule != nil && d.checked {
			d.fail(t, p, "%s wrote %q against %s", tool, now, rule.text)
		}
	}
	for p := range before {
		if _, there := after[p]; !there {
			d.fail(t, p, "%s took it away", tool)
		}
	}
}

// contents are the files and links of a tree.
func contents(t *testing.T, root string) map[string]string {
	out := map[string]string{}
	must(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if target, err := os.Readlink(p); err == nil {
			out[p] = "->" + target
			return nil
		}
		b, err := os.ReadFile(p)
		out[p] = string(b)
		return err
	}))
	return out
}

// report prints what got through, and wants something of each kind of rule wherever
// an enforcer is switched off.
func (d *toolDiffer) report(t *testing.T, enough bool) {
	t.Logf("%d sets, %d refused, %d answers of explain, %d opens, %d calls, %d of them denied, %d refused by the kernel alone, %d denied by a pattern through a link, %d empty files left",
		d.sets, d.refused, d.answers, d.opens, d.calls, d.deniedCalls, d.stricter, d.aliased, d.litter)
	t.Logf("%-10s %8s %8s %8s %8s", "through", "read", "write", "edit", "bash")
	for _, kind := range kinds {
		n := func(op string) int { return d.through[[2]string{kind, op}] }
		t.Logf("%-10s %8d %8d %8d %8d", kind, n("read"), n("write"), n("edit"), n("bash"))
		if tools := n("read") + n("write") + n("edit"); enough && !d.checked && tools == 0 {
			t.Errorf("%s: nothing hangs on the check of the tools", kind)
		}
		if enough && !d.kept && n("bash") == 0 {
			t.Errorf("%s: nothing depends on the enforcer", kind)
		}
	}
	if d.deniedCalls == 0 || d.deniedCalls == d.calls {
		t.Error("the rules deny nothing, or everything")
	}
}
