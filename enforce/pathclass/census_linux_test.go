package pathclass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// headers makes n files that *.h is about in a tree that sessions are to share, with names
// beside: a hard link, a link of root's, and an exception.
func headers(t *testing.T, n int) Tree {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		must.Do(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i%7)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i%7), fmt.Sprintf("%d.h", i)), nil, 0o644))
	}
	must.Do(t, os.Link(filepath.Join(dir, "0/0.h"), filepath.Join(dir, "other")))
	must.Do(t, os.WriteFile(filepath.Join(dir, "target"), nil, 0o644))
	must.Do(t, os.Symlink(filepath.Join(dir, "target"), filepath.Join(dir, "link.h")))
	must.Do(t, os.Symlink("target", filepath.Join(dir, "again.h")))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "d.h/pub"), 0o755))
	return Tree{dir, dir}
}

func wallFor(t *testing.T, rules string) *Wall {
	t.Helper()
	p := must.Get(rulefile.Load("rules.yaml", []byte(rules)))(t)
	rs := must.Get(p.For(filerules.Scope{Home: "/home/a"}))(t)
	return New(rs)
}

const headerRules = "access:\n  useDefaults: false\n  mode: first-match\n  rules:\n    - {allow: '**/pub'}\n    - {deny: '*.h'}\n    - {deny: other-things}\n"

// TestCensus: the count before rules are taken is the one that a session's start comes to.
func TestCensus(t *testing.T) {
	tree := headers(t, 100)
	wall := wallFor(t, headerRules)
	got := must.Get(countPlaces(t.Context(), wall, []Tree{tree}))(t)
	bases := must.Get(openTrees([]Tree{tree}))(t)
	defer bases[0].Close()
	bases[0].Writable = true // so that nothing is remembered of it
	w := Walker{Wall: wall, UID: ^uint32(0), Cache: &Cache{}}
	must.Do(t, w.walk(bases))
	expect.True(t, got.all == len(w.Wants) && got.all == 104,
		"%d places are counted, %d are wanted, want 104", got.all, len(w.Wants))
}

// TestTooManyPlaces: rules that match too much of what sessions share are refused by name,
// with the count; those that match as much as can be kept are not. A count that is given up
// refuses them too.
func TestTooManyPlaces(t *testing.T) {
	tree := headers(t, 100)
	old := maxMounts
	defer func() { maxMounts = old }()
	p, err := rulefile.Load("rules.yaml", []byte(headerRules))
	must.Do(t, err)
	maxMounts = 104
	must.Do(t, CheckTrees(t.Context(), p, "/home/a", []Tree{tree}))
	maxMounts = 103
	err = CheckTrees(t.Context(), p, "/home/a", []Tree{tree})
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), `"deny *.h" (rules.yaml:6)`) || !strings.Contains(err.Error(), "all rules match 104: want at most 103") {
		t.Errorf("beyond the bound: %v", err)
	}
	none := must.Get(rulefile.Load("rules.yaml", []byte("access: {useDefaults: false, deny: [~/x]}")))(t)
	must.Do(t, CheckTrees(t.Context(), none, "/home/a", []Tree{tree, {"/nowhere/at/all", "/nowhere"}}))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	if err := CheckTrees(ctx, p, "/home/a", []Tree{headers(t, 2000)}); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Errorf("a count that was given up: %v", err)
	}
}
