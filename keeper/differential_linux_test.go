package keeper

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chatd/chatd/access"
)

// TestDifferential brings one session through random rules and trees, at its start and
// with what is made later, and compares what the kernel lets through with what the
// policy says. With every wall nothing that is denied gets through; with one switched
// off something does, and the table says how much hangs on which.
//
// CHATD_TEST_RULES is how many rule sets; 150 without it.
func TestDifferential(t *testing.T) {
	rounds := 150
	if n, err := strconv.Atoi(os.Getenv("CHATD_TEST_RULES")); err == nil {
		rounds = n
	}
	t.Logf("%-22s %8s %8s %8s %8s %8s %8s", "walls", "sets", "refused", "paths", "denied", "through", "too much")
	for _, tt := range []struct {
		name        string
		bare, blind bool
	}{{"all", false, false}, {"no mounts", true, false}, {"no judged opens", false, true}, {"none", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			d := differ{inside: newInside(t, tt.bare, tt.blind), rand: rand.New(rand.NewPCG(7, 11)), strict: !tt.bare && !tt.blind}
			for range rounds {
				d.round(t)
			}
			t.Logf("%-22s %8d %8d %8d %8d %8d %8d", tt.name, d.sets, d.refused, d.paths, d.denied, d.through, d.tooMuch)
			if !d.strict && d.through == 0 {
				t.Error("nothing hangs on what is switched off")
			}
			if d.denied == 0 || d.paths == d.denied {
				t.Error("the rules deny nothing, or everything")
			}
		})
	}
}

// differ counts what the kernel and the policy say.
type differ struct {
	*inside
	rand                                           *rand.Rand
	strict                                         bool
	sets, refused, paths, denied, through, tooMuch int
}

func (d *differ) round(t *testing.T) {
	root := filepath.Join(d.home, "t")
	must(t, os.RemoveAll(root))
	d.tree(t, root, 0)
	rules := d.rules()
	if _, err := d.hold(rules); err != nil {
		if strings.Contains(err.Error(), "cannot keep rule") {
			d.refused++
			return
		}
		t.Fatalf("%v\n%s", err, rules)
	}
	d.sets++
	d.compare(t, root, rules, true)
	d.later(t, root)
	// What was made later can be truncated by path until a mount covers it (package doc).
	d.compare(t, root, rules, false)
}

// words are names that rules are about.
var words = []string{"a", "b", ".env", "secrets", "k.pem", "notes"}

func (d *differ) word() string { return words[d.rand.IntN(len(words))] }

// tree makes a random tree: of the chat, with files of somebody else in it.
func (d *differ) tree(t *testing.T, dir string, depth int) {
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.Chown(dir, testUID, testUID))
	for range 1 + d.rand.IntN(4) {
		p := filepath.Join(dir, d.word())
		if _, err := os.Lstat(p); err == nil {
			continue
		}
		switch n := d.rand.IntN(10); {
		case n < 4 && depth < 3:
			d.tree(t, p, depth+1)
		case n == 9:
			must(t, os.Symlink(d.word(), p))
			must(t, os.Lchown(p, testUID, testUID))
		default:
			must(t, os.WriteFile(p, []byte("x"), 0o666))
			must(t, os.Chmod(p, 0o666))
		}
	}
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
			ops = []string{"bash", "write", "edit", "read, bash", "write, bash"}[d.rand.IntN(5)]
		}
		fmt.Fprintf(b, "%s- {%s: %q, ops: [%s]}\n", indent, effect, d.pattern(), ops)
	}
}

func (d *differ) pattern() string {
	w, v := d.word(), d.word()
	forms := []string{"**/" + w, "~/t/" + w, "~/t/" + w + "/**", "**/" + w + "/**", "t/*/" + w, w, "~/t/" + w + "/" + v, "~/t/*",
		"*.pem", "~/t/{a,b}/" + w, "/" + strings.ReplaceAll(w, ".", "\\.") + "$/", "**/" + w + "/" + v, "~/t/?", "/(a|b)\\/" + strings.ReplaceAll(v, ".", "\\.") + "/"}
	return forms[d.rand.IntN(len(forms))]
}

// compare opens every path of the tree as the chat and asks the policy about it.
func (d *differ) compare(t *testing.T, root, rules string, truncates bool) {
	var paths []string
	must(t, filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		if err == nil {
			paths = append(paths, p)
		}
		return err
	}))
	policy, err := access.Load("rules.yaml", []byte(rules))
	must(t, err)
	rs, err := policy.For(access.Scope{Home: d.home})
	must(t, err)
	for i, got := range d.try(t, paths) {
		real := access.Physical(paths[i]) // the kernel goes by where links lead
		denies := func(op access.Op) bool { return rs.JudgeName(real, op).Denied() }
		closed, fixed := denies(access.Bash), denies(access.Write) || denies(access.Edit)
		d.paths++
		if closed || fixed {
			d.denied++
		}
		switch {
		case closed && (got.Read || got.Write) || fixed && got.Write || (closed || fixed) && truncates && got.Truncate:
			if d.through++; d.strict {
				t.Errorf("%s: %+v by rules\n%s", strings.TrimPrefix(paths[i], d.home), got, rules)
			}
		case !closed && !fixed && !got.Read && exists(real):
			d.tooMuch++
		}
	}
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}
