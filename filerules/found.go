package filerules

import (
	"fmt"
	"path"

	"github.com/chatd/chatd/chat"
)

// MaxSteps bounds the comparing of one question with the rules: some nanoseconds each.
const MaxSteps = 1 << 26

// NameOf is the path folded, a glob as it was written.
func NameOf(n chat.NamedPath) string {
	if n.Glob {
		return path.Clean(UnescapeGlob(n.Text))
	}
	return path.Clean(n.Text)
}

// literalOf is the path, or the directory that all a glob stands for is in.
func literalOf(n chat.NamedPath) string {
	if n.Glob {
		return newMatcher(wordSegments(n.Text)).Prefix
	}
	return n.Text
}

// CheckNamed says whether a command may have all paths that it names, in their order: whether
// each is allowed for [Bash], and the kernel does not refuse it all the same. Verdict.Paths are
// their names. After [MaxSteps] it stops; without a deny that is a [chat.ErrInvalid].
func (rs *Ruleset) CheckNamed(named []chat.NamedPath) (Verdict, error) {
	v, most := Verdict{Effect: Allow, Layer: LayerNone}, MaxSteps
	var paths []string
	seen := map[string]bool{}
	for _, n := range named {
		if name := NameOf(n); !seen[name] {
			seen[name] = true
			paths = append(paths, name)
		}
		w, steps := rs.checkNamed(n, most)
		if !v.Denied() && (w.Denied() || v.Rule == nil && w.Rule != nil) {
			v = w
		}
		if most -= steps; most < 0 {
			if v.Denied() {
				break
			}
			return Verdict{Paths: paths}, fmt.Errorf("cannot judge the command: "+
				"want at most %d steps of comparing paths with rules in it: %w", MaxSteps, chat.ErrInvalid)
		}
	}
	v.Paths = paths
	return v, nil
}

// checkNamed judges one, and says how many steps that took. After more than most it stops.
func (rs *Ruleset) checkNamed(n chat.NamedPath, most int) (v Verdict, steps int) {
	if n.Glob {
		v, steps = rs.checkGlob(n.Text, most)
	} else {
		v, steps = rs.check(n.Text, Bash)
	}
	if v.Denied() {
		return v, steps
	}
	held, more := rs.checkKernel(literalOf(n), Bash, most-steps)
	if held.Denied() {
		v = held
	}
	return v, steps + more
}
