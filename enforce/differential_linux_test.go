package enforce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestDifferential brings one session through random rules and trees, at its start and with what is
// made later, and compares what the kernel lets through with what the policy says, and with what
// explain promises. Rules may be about anything: such as no session starts with are refused by
// name, and change nothing. With every wall nothing that is denied gets through; with one switched
// off something does, and the table says how much hangs on which.
//
// CHATD_TEST_RULES is how many rule sets; 150 without it. With -short it is half of that, and where
// a wall is switched off no more than it takes until something gets through.
func TestDifferential(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 75
	}
	if n, err := strconv.Atoi(os.Getenv("CHATD_TEST_RULES")); err == nil {
		rounds = n
	}
	t.Logf("%-22s %8s %8s %8s %8s %8s %8s", "walls", "sets", "refused", "paths", "denied", "through", "too much")
	for _, tt := range []struct {
		name        string
		bare, blind bool
	}{{"all", false, false}, {"no mounts", true, false}, {"no checked opens", false, true}, {"none", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			d := differ{inside: newInside(t, tt.bare, tt.blind), rand: rand.New(rand.NewPCG(7, 11)), strict: !tt.bare && !tt.blind}
			d.k.watch.noNames = tt.bare // where names are reported, closed files need no mount
			for range rounds {
				d.round(t)
				if testing.Short() && !d.strict && d.through > 0 && d.denied > 0 && d.paths > d.denied {
					break // the table has its figures in a long run
				}
			}
			t.Logf("%-22s %8d %8d %8d %8d %8d %8d", tt.name, d.sets, d.refused, d.paths, d.denied, d.through, d.tooMuch)
			if !d.strict && d.through == 0 {
				t.Error("nothing hangs on what is switched off")
			}
			expect.True(t, d.denied != 0 && d.paths != d.denied, "the rules deny nothing, or everything")
		})
	}
}

// differ counts what the kernel and the policy say.
type differ struct {
	*inside
	rand                                           *rand.Rand
	strict                                         bool
	sets, refused, paths, denied, through, tooMuch int
	last                                           string          // the rules that hold
	came                                           map[string]bool // what was made later and never moved
}

func (d *differ) round(t *testing.T) {
	d.came = map[string]bool{}
	for _, root := range d.roots() {
		must.Do(t, os.RemoveAll(d.outside(root)))
		d.tree(t, d.outside(root), 0)
	}
	d.forget(t)
	rules := d.rules()
	if _, err := d.applyRules(rules); err != nil {
		if !strings.Contains(err.Error(), "cannot keep rule") || !strings.Contains(err.Error(), "(rules.yaml:") {
			t.Fatalf("%v\n%s", err, rules)
		}
		d.refused++
		if d.last != "" { // refused rules change nothing: those before hold, and the session goes on
			d.settles(t, d.last)
		}
		return
	}
	d.sets++
	d.last = rules
	d.goesOn(t, rules)
	d.compare(t, rules, true)
	for _, root := range d.roots() {
		d.comers(t, root)
		if d.rand.IntN(3) > 0 { // otherwise only a newcomer makes the enforcer look again
			d.later(t, d.outside(root))
		}
	}
	// What was made later can be truncated by path until its mask is mounted (package doc).
	d.settles(t, rules)
}

// goesOn fails if rules were taken with which a session cannot go on, or another not start.
func (d *differ) goesOn(t *testing.T, rules string) {
	got := d.try(t, []string{"/dev/null", "/proc/self/status"})
	must.True(t, got[0].Write && got[1].Read, "the session cannot go on: %+v by rules\n%s", got, rules)
	policy := must.Get(rulefile.Load("rules.yaml", []byte(rules)))(t)
	for _, agent := range append(policy.Agents(), "*") {
		rs := must.Get(policy.For(filerules.Scope{Agent: agent, Home: d.home}))(t)
		d.starts(t, rs, rules)
	}
}

func (d *differ) starts(t *testing.T, rs *filerules.Ruleset, rules string) {
	for _, p := range []string{"/", "/proc", "/sys", "/dev", "/dev/null", "/opt/chatd", "/run/chat", d.home, "/etc", "/tmp", "/usr/bin/bash"} {
		closed := rs.ClassOf(p).Class == filerules.Closed
		for _, op := range []filerules.Op{filerules.Write, filerules.Edit} {
			closed = closed || !filerules.Enforced(p) && rs.CheckName(p, op).Denied()
		}
		if closed && d.strict {
			t.Errorf("no session starts without %s, which is denied by rules\n%s", p, rules)
		}
	}
}

// forget makes the enforcer forget what directories of the trees before were called, and where
// their links led: it goes by paths, and these trees have the same.
func (d *differ) forget(t *testing.T) {
	w := d.k.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sessions[d.order.Chat]
	if s == nil {
		return
	}
	must.Do(t, w.readNames())
	for s.backlog.len() > 0 {
		must.Get(w.process(s))(t)
	}
	clear(s.moved)
	s.session.linkTargets = pathclass.Links{}
}

// roots are where the session's trees are: in its home, and in /dev/shm.
func (d *differ) roots() []string { return []string{filepath.Join(d.home, "t"), "/dev/shm/t"} }

// outside is where a path of the session is here, and within the reverse.
func (d *differ) outside(p string) string {
	if rel, ok := strings.CutPrefix(p, "/dev/shm"); ok {
		return d.home + "-shm" + rel
	}
	return p
}

func (d *differ) within(p string) string {
	if rel, ok := strings.CutPrefix(p, d.home+"-shm"); ok {
		return "/dev/shm" + rel
	}
	return p
}

// physical is the name that links lead to, as the session sees them.
func (d *differ) physical(p string) string { return d.within(filerules.Physical(d.outside(p))) }

// words are names that rules are about.
var words = []string{"a", "b", ".env", "secrets", "k.pem", "notes"}

func (d *differ) word() string { return words[d.rand.IntN(len(words))] }

// tree makes a random tree: of the chat, with files of somebody else in it.
func (d *differ) tree(t *testing.T, dir string, depth int) {
	must.Do(t, os.MkdirAll(dir, 0o755))
	must.Do(t, os.Chown(dir, testUID, testUID))
	for range 1 + d.rand.IntN(4) {
		p := filepath.Join(dir, d.word())
		if _, err := os.Lstat(p); err == nil {
			continue
		}
		switch n := d.rand.IntN(10); {
		case n < 4 && depth < 3:
			d.tree(t, p, depth+1)
		case n == 9:
			d.link(t, d.word(), p)
		default:
			must.Do(t, os.WriteFile(p, []byte("x"), 0o666))
			must.Do(t, os.Chmod(p, 0o666))
		}
	}
}

// link makes a link of the chat's own, and never one of somebody else's: what such a link leads to
// is closed by a look that comes before the link is given away.
func (d *differ) link(t *testing.T, target, p string) {
	t.Helper()
	made := d.home + "-link" // no tree of the session
	must.Do(t, os.Symlink(target, made))
	must.Do(t, os.Lchown(made, testUID, testUID))
	must.Do(t, os.Rename(made, p))
}

// comers makes files in directories that were there before, as somebody else does: an exception
// that comes to a closed directory so is opened. It makes a link where rules may name a
// directory, too.
func (d *differ) comers(t *testing.T, root string) {
	if link := filepath.Join(d.outside(root), d.word()); d.rand.IntN(2) == 0 && !exists(link) {
		d.link(t, d.word(), link)
	}
	must.Do(t, filepath.WalkDir(d.outside(root), func(p string, e os.DirEntry, err error) error {
		file := filepath.Join(p, d.word())
		if err == nil && e.IsDir() && !exists(file) {
			makeFree(t, file)
			d.came[d.within(file)] = true
		}
		return err
	}))
}

// later makes and moves things as somebody else does while the session is up.
func (d *differ) later(t *testing.T, root string) {
	d.tree(t, filepath.Join(root, d.word()+"-later"), 1)
	d.tree(t, filepath.Join(root, "new"), 1)
	_ = os.Rename(filepath.Join(root, "new"), filepath.Join(root, "b", d.word()))
	_ = os.Rename(filepath.Join(root, "a"), filepath.Join(root, "secrets-not"))
}

// rules are a random file of rules about the tree.
func (d *differ) rules() string {
	var b strings.Builder
	fmt.Fprintf(&b, "access:\n  useDefaults: %t\n  mode: %s\n  rules:\n", d.rand.IntN(3) == 0, []string{"deny-wins", "first-match"}[d.rand.IntN(2)])
	d.ruleList(&b, "    ")
	if d.rand.IntN(2) == 0 {
		b.WriteString("agents:\n  main:\n    access:\n      rules:\n")
		d.ruleList(&b, "        ")
	}
	return b.String()
}

func (d *differ) ruleList(b *strings.Builder, indent string) {
	for range 1 + d.rand.IntN(3) {
		effect, ops := "deny", "'*'"
		if d.rand.IntN(3) == 0 {
			effect = "allow"
		}
		if d.rand.IntN(3) == 0 {
			ops = []string{"bash", "write", "edit", "read", "read, bash", "write, bash"}[d.rand.IntN(6)]
		}
		fmt.Fprintf(b, "%s- {%s: %q, ops: [%s]}\n", indent, effect, d.pattern(), ops)
	}
}

func (d *differ) pattern() string {
	w, v := d.word(), d.word()
	if d.rand.IntN(16) == 0 { // what may be anything of the host's, the home, or where a program stands
		forms := []string{"/proc", "/pro*", "dev", "/dev/nul?", "usr", "/usr/lib/any", "*", "~", "~/*", ".", "..", "~/t/..", "/", "/*", "/d*/**", "/etc/ssl", "/{bin,x}"}
		return forms[d.rand.IntN(len(forms))]
	}
	forms := []string{"./t/" + w, "t/../t/" + w + "/**", "/dev/shm/t/" + w, "/dev/shm/**/" + w, "/dev/shm/t/*",
		"**/" + w, "~/t/" + w, "~/t/" + w + "/**", "**/" + w + "/**", "t/*/" + w, w, "~/t/" + w + "/" + v, "~/t/*",
		"*.pem", "~/t/{a,b}/" + w, "/" + strings.ReplaceAll(w, ".", "\\.") + "$/", "**/" + w + "/" + v, "~/t/?", "/(a|b)\\/" + strings.ReplaceAll(v, ".", "\\.") + "/"}
	return forms[d.rand.IntN(len(forms))]
}

// answer is what came of one path, and what is wrong with that; empty if nothing is.
type answer struct {
	openResult
	closed, fixed, more bool
	wrong               string
}

// ask opens every path of the trees as the chat and asks the policy about it, and explain.
func (d *differ) ask(t *testing.T, rules string, resolve func(string) string, truncates bool) map[string]answer {
	var paths []string
	for _, root := range d.roots() {
		must.Do(t, filepath.WalkDir(d.outside(root), func(p string, e os.DirEntry, err error) error {
			if err == nil {
				paths = append(paths, d.within(p))
			}
			return err
		}))
	}
	policy := must.Get(rulefile.Load("rules.yaml", []byte(rules)))(t)
	rs := must.Get(policy.For(filerules.Scope{Home: d.home, Resolve: resolve}))(t)
	all := map[string]answer{}
	for i, got := range d.try(t, paths) {
		all[paths[i]] = d.check(t, rs, paths[i], got, truncates)
	}
	return all
}

func (d *differ) check(t *testing.T, rs *filerules.Ruleset, p string, got openResult, truncates bool) answer {
	real := d.physical(p) // the kernel goes by where links lead
	denies := func(op filerules.Op) bool { return rs.CheckName(real, op).Denied() }
	allows := func(op filerules.Op) bool {
		v := must.Get(rs.Verdict(p, op))(t)
		return !v.Denied()
	}
	a := answer{openResult: got, closed: denies(filerules.Bash), fixed: denies(filerules.Write) || denies(filerules.Edit)}
	fi, err := os.Lstat(d.outside(real))
	switch {
	case a.closed && (got.Read || got.Write) || a.fixed && got.Write || (a.closed || a.fixed) && truncates && got.Truncate:
		a.wrong = "the kernel lets it through"
	case err != nil || fi.Mode()&os.ModeSymlink != 0: // nothing is there, or a circle
	case !allows(filerules.Bash): // the rest of the operations are the file tools'
	case !got.Read, fi.Mode().IsRegular() && rs.ClassOf(real).Class == filerules.Open && !got.Write:
		a.wrong, a.more = "the kernel refuses what the rules leave open", true
	}
	return a
}

// compare counts what is wrong, and says it where every wall is there.
func (d *differ) compare(t *testing.T, rules string, truncates bool) {
	for p, a := range d.ask(t, rules, d.physical, truncates) {
		d.paths++
		if a.closed || a.fixed {
			d.denied++
		}
		switch {
		case a.wrong == "":
			continue
		case a.more:
			d.tooMuch++
		default:
			d.through++
		}
		expect.True(t, !d.strict, "%s: %s: %+v by rules\n%s", p, a.wrong, a.openResult, rules)
	}
}

// settles compares what was made later: immediately by names, and then, when the enforcer has
// looked at it, also by links that came, and by exceptions. It may be stricter where a file was
// called otherwise before.
func (d *differ) settles(t *testing.T, rules string) {
	for p, a := range d.ask(t, rules, nil, false) {
		d.paths++
		if a.closed || a.fixed {
			d.denied++
		}
		if a.wrong != "" && !a.more {
			if d.through++; d.strict {
				t.Errorf("%s: %s: %+v by rules\n%s", p, a.wrong, a.openResult, rules)
			}
		}
	}
	for until := time.Now().Add(longEnough); d.strict; time.Sleep(5 * time.Millisecond) {
		waits := ""
		for p, a := range d.ask(t, rules, d.physical, false) {
			if a.wrong != "" && (!a.more || d.came[p]) {
				waits = fmt.Sprintf("%s: %s: %+v by rules\n%s", p, a.wrong, a.openResult, rules)
			}
		}
		if waits == "" {
			return
		}
		must.True(t, !time.Now().After(until), "%v", "for ever: "+waits)
	}
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}
