package filerules

import (
	"fmt"
	"path"

	"github.com/chatd/chatd/chat"
)

// MaxSteps bounds the steps of checking one question, of some nanoseconds each.
const MaxSteps = 1 << 26

// NameOf is the folded path, or the glob unchanged.
func NameOf(n chat.NamedPath) string {
	if n.Glob {
		return path.Clean(UnescapeGlob(n.Text))
	}
	return path.Clean(n.Text)
}

// literalOf is the path, or the directory that contains all matches of a glob.
func literalOf(n chat.NamedPath) string {
	if n.Glob {
		return newMatcher(wordSegments(n.Text)).Prefix
	}
	return n.Text
}

// CheckNamed reports whether a command may use all paths that it names, in their order: whether the
// rules allow each for [Bash], and the kernel does not refuse it. Verdict.Paths are their names. It
// stops after [MaxSteps]; if nothing was denied by then, the error is [chat.ErrInvalid].
func (rs *Ruleset) CheckNamed(named []chat.NamedPath) (Verdict, error) {
	v, left := Verdict{Effect: Allow, Layer: LayerNone}, MaxSteps
	var paths []string
	seen := map[string]bool{}
	for _, n := range named {
		if name := NameOf(n); !seen[name] {
			seen[name] = true
			paths = append(paths, name)
		}
		w, steps := rs.checkNamed(n, left)
		if !v.Denied() && (w.Denied() || v.Rule == nil && w.Rule != nil) {
			v = w
		}
		if left -= steps; left < 0 {
			if v.Denied() {
				break
			}
			return Verdict{Paths: paths}, fmt.Errorf("cannot check the command: "+
				"want at most %d steps of comparing paths with rules in it: %w", MaxSteps, chat.ErrInvalid)
		}
	}
	v.Paths = paths
	return v, nil
}

// checkNamed checks one path, and returns how many steps it took. It stops after more than left.
func (rs *Ruleset) checkNamed(n chat.NamedPath, left int) (v Verdict, steps int) {
	if n.Glob {
		v, steps = rs.checkGlob(n.Text, left)
	} else {
		v, steps = rs.check(n.Text, Bash)
	}
	if v.Denied() {
		return v, steps
	}
	held, more := rs.checkKernel(literalOf(n), Bash, left-steps)
	if held.Denied() {
		v = held
	}
	return v, steps + more
}
