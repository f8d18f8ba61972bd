package pathclass

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// censusTime bounds how long the places of one agent's rules are counted. A session that
// takes longer to look through the same trees comes near the timeout of an order.
const censusTime = time.Minute

// Tree is a directory of the host, or a file, that all sessions of a profile see at At.
type Tree struct{ Source, At string }

// CheckTrees refuses, as [Check] does, rules that match more places in these trees than a session
// can mask. It tries each agent of the policy, and none, and names the rules with the count. It
// walks the host's own trees in this process, so no session sees it. It skips what this process may
// not read, unless the process is root's.
func CheckTrees(ctx context.Context, p *filerules.Policy, home string, trees []Tree) error {
	return refuseRules(p, home, func(rs *filerules.Ruleset, refuse refuseFunc) error {
		places, err := countPlaces(ctx, New(rs), trees)
		if err != nil {
			return fmt.Errorf("cannot count what the file rules match in the trees that sessions share: %w",
				err)
		}
		for _, r := range places.refused() {
			refuse(*r, fmt.Sprintf("it matches %d places in the trees that all sessions see, where all "+
				"rules match %d: want at most %d", places.by[r], places.all, maxMounts))
		}
		return nil
	})
}

// census counts places by the rules that make them.
type census struct {
	rules *filerules.Ruleset
	all   int
	by    map[*filerules.Rule]int
}

// countPlaces returns when ctx ends, also where a file system of the host does not answer.
func countPlaces(ctx context.Context, wall *Wall, trees []Tree) (census, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, censusTime,
		fmt.Errorf("it takes longer than %v", censusTime))
	defer cancel()
	type result struct {
		census
		err error
	}
	done := make(chan result, 1)
	go func() {
		c := census{rules: wall.rules, by: map[*filerules.Rule]int{}}
		err := c.count(ctx, wall, trees)
		done <- result{c, err}
	}()
	select {
	case c := <-done:
		return c.census, c.err
	case <-ctx.Done():
		return census{}, context.Cause(ctx)
	}
}

// count is the walk of a session's start without the session's own trees.
func (c *census) count(ctx context.Context, wall *Wall, trees []Tree) error {
	if !wall.Any {
		return nil
	}
	// No chat owns anything there.
	w := &Walker{Wall: wall, UID: ^uint32(0), Cache: &Cache{}, found: c.add,
		partial: os.Geteuid() != 0, ctx: ctx}
	bases, err := openTrees(trees)
	defer func() {
		for _, b := range bases {
			b.Close()
		}
	}()
	if err == nil {
		err = w.walk(bases)
	}
	return err
}

// openTrees opens what is there of the trees.
func openTrees(trees []Tree) (bases []*Base, err error) {
	for _, t := range trees {
		fd, err := unix.Open(t.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return bases, fmt.Errorf("cannot open %s: %w", chat.Quote(t.Source), err)
		}
		b := &Base{Mount: sys.Mount{Path: t.At, Root: t.Source}, Tree: fd, Top: -1, Handles: -1}
		bases = append(bases, b)
		st, err := sys.StatFD(fd)
		if err != nil {
			return bases, fmt.Errorf("cannot look at %s: %w", chat.Quote(t.Source), err)
		}
		b.Dir, b.Inode = st.Mode&unix.S_IFMT == unix.S_IFDIR, sys.InodeOf(&st)
	}
	slices.SortFunc(bases, func(a, b *Base) int { return sys.ComparePaths(a.Path, b.Path) })
	return bases, nil
}

// add counts one place for the rule that makes it one: what it has, or does not have, in
// common with its directory.
func (c *census) add(p string) {
	c.all++
	if h := c.rules.ClassOf(p); h.Why.Rule != nil {
		c.by[h.Why.Rule]++
		return
	}
	for _, op := range []filerules.Op{filerules.Bash, filerules.Write, filerules.Edit} {
		if v := c.rules.CheckName(p, op); v.Rule != nil {
			c.by[v.Rule]++
			return
		}
	}
}

// refused are the rules that alone match too many places; if all together do, the one that
// matches most.
func (c *census) refused() []*filerules.Rule {
	if c.all <= maxMounts || len(c.by) == 0 {
		return nil
	}
	rules := slices.SortedFunc(maps.Keys(c.by), func(a, b *filerules.Rule) int {
		return sys.ComparePaths(a.Place+a.String(), b.Place+b.String())
	})
	largest := slices.MaxFunc(rules, func(a, b *filerules.Rule) int { return cmp.Compare(c.by[a], c.by[b]) })
	return slices.DeleteFunc(rules, func(r *filerules.Rule) bool {
		return c.by[r] <= maxMounts && r != largest
	})
}
