package enforce

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
