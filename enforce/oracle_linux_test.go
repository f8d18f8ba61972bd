package enforce

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// The oracle says what random rules mean without reading any: each pattern is made
// together with the question that it asks of a path, and the order of the layers is
// written out. Nothing of it is from package filerules, and it knows no index.

// oracleRule is a rule, and what it is about.
type oracleRule struct {
	effect, text, kind string
	ops                []string // nil is all
	about              func(p string) bool
}

func (r oracleRule) has(op string) bool { return r.ops == nil || slices.Contains(r.ops, op) }

// oracle is a file of rules in the order of first-match.
type oracle struct {
	firstMatch                                                   bool
	agentRules, agentDeny, globalRules, globalDeny, defaultRules []oracleRule
}

// decides is the rule that denies op on an absolute, folded name; nil if none does.
func (o oracle) decides(name, op string) *oracleRule {
	agent := slices.Concat(o.agentRules, o.agentDeny)
	global := slices.Concat(o.globalRules, o.globalDeny, o.defaultRules)
	find := func(rules []oracleRule, effects ...string) *oracleRule {
		for _, r := range rules {
			if slices.Contains(effects, r.effect) && r.has(op) && r.about(name) {
				return &r
			}
		}
		return nil
	}
	if o.firstMatch {
		if r := find(append(agent, global...), "allow", "deny"); r != nil && r.effect == "deny" {
			return r
		}
		return nil
	}
	if find(agent, "allow") != nil {
		return nil
	}
	if r := find(agent, "deny"); r != nil {
		return r
	}
	return find(global, "deny")
}

// denies checks both names of a path: a deny of either denies.
func (o oracle) denies(p, op string) *oracleRule {
	if r := o.decides(p, op); r != nil {
		return r
	}
	if real := leadsTo(p); real != "" {
		return o.decides(real, op)
	}
	return nil // nobody gets anywhere by it
}

// named reports whether a verdict names a deny of the file that is about its name.
func (o oracle) named(v filerules.Verdict, op string) bool {
	for _, r := range slices.Concat(o.agentRules, o.agentDeny, o.globalRules, o.globalDeny, o.defaultRules) {
		if v.Rule != nil && r.text == v.Rule.Pattern && r.effect == "deny" && r.has(op) && r.about(v.Name) {
			return true
		}
	}
	return false
}

// deniesAlias reports whether a deny is about another name that links of the tree give
// to where p leads: explain looks where links in a pattern lead, too (specs/0003).
func (o oracle) deniesAlias(p, op string, links []string) bool {
	names := []string{p, leadsTo(p)}
	for range 2 {
		for _, l := range links {
			for _, n := range names {
				if real := leadsTo(l); real != "" && chat.Within(n, real) {
					names = append(names, l+strings.TrimPrefix(n, real))
				}
			}
		}
	}
	for _, r := range slices.Concat(o.agentRules, o.agentDeny, o.globalRules, o.globalDeny, o.defaultRules) {
		if r.effect == "deny" && r.has(op) && slices.ContainsFunc(names, r.about) {
			return true
		}
	}
	return false
}

// leadsTo is where links lead, by the library; one to nothing leads to its target,
// and what goes in a circle leads nowhere.
func leadsTo(p string) string {
	for range 40 {
		real, err := filepath.EvalSymlinks(p)
		switch {
		case err == nil:
			return real
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			return ""
		}
		dir := leadsTo(filepath.Dir(p))
		if dir == "" {
			return ""
		}
		p = filepath.Join(dir, filepath.Base(p))
		target, err := os.Readlink(p)
		if err != nil {
			return p
		}
		p = filepath.Join(dir, target)
	}
	return ""
}

func TestLeadsTo(t *testing.T) {
	dir := t.TempDir()
	for from, to := range map[string]string{"l": "f", "m": "l", "gone": "n", "round": "round", "d": "."} {
		must.Do(t, os.Symlink(to, filepath.Join(dir, from)))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	for p, want := range map[string]string{"m": "f", "d/m": "f", "gone": "n", "d/gone": "n", "d/x/y": "x/y", "m/x": "f/x", "d/gone/x": "n/x"} {
		got := leadsTo(filepath.Join(dir, p))
		expect.True(t, got == filepath.Join(dir, want), "%s leads to %s, want %s", p, got, want)
	}
	expect.Equal(t, leadsTo(filepath.Join(dir, "round", "x")), "", "a circle leads to")
}

// pattern is a random pattern and what it is about, for a home with a tree t.
func pattern(r *rand.Rand, home string) (text, kind string, about func(string) bool) {
	w, v := words[r.IntN(len(words))], words[r.IntN(len(words))]
	top := home + "/t"
	under := func(dir string) func(string) bool {
		return func(p string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	}
	is := func(dir, base string) func(string) bool {
		return func(p string) bool { return filepath.Dir(p) == dir && (base == "" || filepath.Base(p) == base) }
	}
	last := func(p string) bool { return filepath.Base(p) == w }
	anywhere := func(p string) bool { return slices.Contains(strings.Split(p, "/"), w) }
	quoted := func(s string) string { return strings.ReplaceAll(s, ".", `\.`) }
	switch r.IntN(14) {
	case 0:
		return "**/" + w, "glob", last
	case 1:
		return "~/t/" + w, "subtree", under(top + "/" + w)
	case 2:
		return "~/t/" + w + "/**", "subtree", under(top + "/" + w)
	case 3:
		return "**/" + w + "/**", "glob", anywhere
	case 4:
		return "t/*/" + w, "glob", func(p string) bool { return last(p) && filepath.Dir(filepath.Dir(p)) == top }
	case 5:
		return w, "name", anywhere
	case 6:
		return "~/t/" + w + "/" + v, "subtree", under(top + "/" + w + "/" + v)
	case 7:
		return "~/t/*", "glob", is(top, "")
	case 8:
		return "*.pem", "name", func(p string) bool { return strings.HasSuffix(p, ".pem") }
	case 9:
		return "~/t/{a,b}/" + w, "subtree", func(p string) bool { return under(top+"/a/"+w)(p) || under(top+"/b/"+w)(p) }
	case 10:
		return "/" + quoted(w) + "$/", "regex", func(p string) bool { return strings.HasSuffix(p, w) }
	case 11:
		return "**/" + w + "/" + v, "glob", func(p string) bool { return strings.HasSuffix(p, "/"+w+"/"+v) }
	case 12:
		return "~/t/?", "glob", func(p string) bool { return filepath.Dir(p) == top && len(filepath.Base(p)) == 1 }
	}
	return `/(a|b)\/` + quoted(v) + "/", "regex", func(p string) bool { return strings.Contains(p, "a/"+v) || strings.Contains(p, "b/"+v) }
}

// opSets are ops of random rules, all of them most often.
var opSets = [][]string{nil, nil, nil, nil, {"read"}, {"read"}, {"read"}, {"bash"}, {"write"}, {"edit"}, {"read", "bash"}, {"write", "bash"}, {"read", "write"}, {"edit", "read"}}

func randomRule(r *rand.Rand, home string) oracleRule {
	rule := oracleRule{effect: "deny", ops: opSets[r.IntN(len(opSets))]}
	if r.IntN(4) == 0 {
		rule.effect = "allow"
	}
	rule.text, rule.kind, rule.about = pattern(r, home)
	unkept := rule.effect == "deny" && rule.kind != "subtree" && !rule.has("bash") && (rule.has("write") || rule.has("edit"))
	if unkept && r.IntN(8) > 0 { // else most files would be refused at load (Check)
		rule.ops = []string{"read"}
	}
	return rule
}

// randomRules is a random file of rules, and what it means.
func randomRules(r *rand.Rand, home string) (string, oracle) {
	o := oracle{firstMatch: r.IntN(2) == 0}
	var b strings.Builder
	mode, defaults := "deny-wins", r.IntN(3) == 0
	if o.firstMatch {
		mode = "first-match"
	}
	fmt.Fprintf(&b, "access:\n  useDefaults: %t\n  mode: %s\n", defaults, mode)
	o.globalRules, o.globalDeny = section(r, &b, home, "  ")
	if r.IntN(2) == 0 {
		b.WriteString("agents:\n  main:\n    access:\n")
		o.agentRules, o.agentDeny = section(r, &b, home, "      ")
	}
	if defaults {
		o.defaultRules = defaultRules(home)
	}
	return b.String(), o
}

// section writes one section: rules, and now and then the shorthand.
func section(r *rand.Rand, b *strings.Builder, home, indent string) (rules, deny []oracleRule) {
	fmt.Fprintf(b, "%srules:\n", indent)
	for range 1 + r.IntN(3) {
		rule := randomRule(r, home)
		ops := "'*'"
		if rule.ops != nil {
			ops = strings.Join(rule.ops, ", ")
		}
		fmt.Fprintf(b, "%s  - {%s: %q, ops: [%s]}\n", indent, rule.effect, rule.text, ops)
		rules = append(rules, rule)
	}
	if r.IntN(3) == 0 {
		rule := randomRule(r, home)
		rule.effect, rule.ops = "deny", nil
		fmt.Fprintf(b, "%sdeny: [%q]\n", indent, rule.text)
		deny = append(deny, rule)
	}
	return rules, deny
}

func defaultRules(home string) []oracleRule {
	deny := func(text string, about func(string) bool) oracleRule {
		return oracleRule{effect: "deny", text: text, kind: "defaults", about: about}
	}
	below := func(dir string) func(string) bool {
		return func(p string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	}
	return []oracleRule{
		deny("~/.ssh/**", below(home+"/.ssh")), deny("~/.gnupg/**", below(home+"/.gnupg")),
		deny("**/.env", func(p string) bool { return filepath.Base(p) == ".env" }),
		deny("**/secrets/**", func(p string) bool { return slices.Contains(strings.Split(p, "/"), "secrets") }),
	}
}

// TestLanguageAgainstOracle: for random rules and trees with links, the language says op by op what
// an oracle says that reads no rules, and names a rule that is about the path. The file tools obey
// it so (roottest.TestToolsObeyTheLanguage).
func TestLanguageAgainstOracle(t *testing.T) {
	rounds, answers, denied := 300, 0, 0
	if testing.Short() {
		rounds = 100
	}
	for i := range rounds {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		home := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
		root := filepath.Join(home, "t")
		randomTree(t, r, root, 0)
		text, rules := randomRules(r, home)
		policy := must.Get(rulefile.Load("rules.yaml", []byte(text)))(t)
		rs := must.Get(policy.For(filerules.Scope{Home: home, Resolve: filerules.Physical}))(t)
		names := namesOf(t, r, root)
		links := linksAmong(names)
		for _, p := range names {
			if leadsTo(p) == "" {
				continue // a circle: nobody gets anywhere by it
			}
			for _, op := range []string{"read", "write", "edit", "bash"} {
				o := must.Get(filerules.ParseOp(op))(t)
				v := must.Get(rs.Check(p, o))(t)
				answers++
				want := rules.denies(p, op)
				switch {
				case v.Denied() && want == nil && rules.deniesAlias(p, op, links):
				case v.Denied() != (want != nil):
					t.Errorf("%s: %+v for %s, the oracle says %+v, by\n%s", p, v, op, want, text)
				case v.Denied() && !rules.named(v, op) && !rules.deniesAlias(p, op, links):
					t.Errorf("%s: %s is named for %s of %s, by\n%s", p, v.Rule, op, v.Name, text)
				case v.Denied():
					denied++
				}
			}
		}
	}
	expect.True(t, answers >= 20*rounds && denied >= rounds,
		"control: %d answers, %d denied", answers, denied)
	t.Logf("%d answers, %d denied", answers, denied)
}

// randomTree makes a random tree with files and links.
func randomTree(t *testing.T, r *rand.Rand, dir string, depth int) {
	t.Helper()
	must.Do(t, os.MkdirAll(dir, 0o755))
	for range 1 + r.IntN(4) {
		p := filepath.Join(dir, words[r.IntN(len(words))])
		if _, err := os.Lstat(p); err == nil {
			continue
		}
		switch n := r.IntN(10); {
		case n < 4 && depth < 3:
			randomTree(t, r, p, depth+1)
		case n == 9:
			must.Do(t, os.Symlink(words[r.IntN(len(words))], p))
		default:
			must.Do(t, os.WriteFile(p, nil, 0o600))
		}
	}
}

// namesOf are all paths of a tree, and in each directory and beyond each link some that are not
// there.
func namesOf(t *testing.T, r *rand.Rand, root string) (names []string) {
	t.Helper()
	must.Do(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		names = append(names, p)
		if err == nil && !e.Type().IsRegular() {
			word := words[r.IntN(len(words))]
			names = append(names, filepath.Join(p, word), filepath.Join(p, "to-be", word))
		}
		return err
	}))
	return names
}

func linksAmong(names []string) (links []string) {
	for _, p := range names {
		if target, err := os.Readlink(p); err == nil && !strings.HasPrefix(target, "/") {
			links = append(links, p)
		}
	}
	return links
}
