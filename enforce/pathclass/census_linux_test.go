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
	"github.com/chatd/chatd/internal/sys"
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
	err = CheckTrees(ctx, p, "/home/a", []Tree{headers(t, 2000)})
	expect.True(t, err != nil && strings.Contains(err.Error(), "given up"), "a count that was given up: %v", err)
}

// TestBounds: what cannot be looked through in bounds is refused, and what can is not.
func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		bound *int
		max   int
		make  func(dir string, n int) error
		want  string
	}{
		"names": {&maxWalk, 50, func(dir string, n int) error {
			var err error
			for i := 0; i < n && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644)
			}
			return err
		}, "more than 50 files to look through"},
		"depth": {&maxDepth, 50, func(dir string, n int) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", n)), 0o755)
		}, "deeper than 50"},
		"mounts": {&maxMounts, 50, func(dir string, n int) error {
			var err error
			for i := 0; i < n && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.env", i)), nil, 0o644)
			}
			return err
		}, "want at most 50"},
	} {
		t.Run(name, func(t *testing.T) {
			old := *tt.bound
			*tt.bound = tt.max
			defer func() { *tt.bound = old }()
			for n, refused := range map[int]bool{tt.max: false, tt.max + 1: true} {
				dir := t.TempDir()
				must.Do(t, tt.make(dir, n))
				bases, err := openTrees([]Tree{{dir, dir}})
				must.Do(t, err)
				defer bases[0].Close()
				wall := wallFor(t, "access: {useDefaults: false, deny: ['*.env']}")
				w := Walker{Wall: wall, Cache: &Cache{}, partial: os.Geteuid() != 0}
				err = w.walk(bases)
				if refused != (err != nil) || refused && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%d: %v, want %q: %t", n, err, tt.want, refused)
				}
			}
		})
	}
}

// TestTreeCacheOverOverlays: sessions have overlays of their own over one tree, with device
// numbers that the kernel gives again; what counts is what they are over.
func TestTreeCacheOverOverlays(t *testing.T) {
	k := &Walker{Source: Source{Rules: []byte("rules")}}
	overlay := func(dev, source string) treeKey {
		return keyOf(k, &Base{Mount: sys.Mount{Dev: dev, Root: "/", Path: "/usr", Kind: "overlay", Source: source}})
	}
	expect.True(t, overlay("0:50", "chatd-fe00-2") == overlay("0:51", "chatd-fe00-2"),
		"two overlays over one tree are two trees")
	expect.True(t, overlay("0:50", "chatd-fe00-2") != overlay("0:50", "chatd-fe00-3"),
		"an overlay over another tree is the same where it has the same device")
	expect.True(t, overlay("0:50", "docker") != overlay("0:51", "docker"),
		"overlays of others are told by their names")
}
