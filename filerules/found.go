package filerules

import (
	"path"
	"strings"

	"github.com/chatd/chatd/chat"
)

// MaxSteps bounds the steps of checking one question, of some nanoseconds each at most.
const MaxSteps = 1 << 27

// NameOf is the folded path, or the glob unchanged.
func NameOf(n chat.NamedPath) string {
	if n.Glob {
		return path.Clean(UnescapeGlob(n.Text))
	}
	return path.Clean(n.Text)
}

// CheckNamed reports whether a command may use all paths that it names, in their order: whether the
// rules allow each for [Bash], and the kernel does not refuse it. Verdict.Paths are their names. It
// stops before [MaxSteps]; if nothing was denied by then, the error is [chat.ErrInvalid].
func (rs *Ruleset) CheckNamed(named []chat.NamedPath) (Verdict, error) {
	v, left := Verdict{Effect: Allow, Layer: LayerNone}, MaxSteps
	var paths []string
	seen := map[string]bool{}
	for _, n := range named {
		if name := NameOf(n); !seen[name] {
			seen[name] = true
			paths = append(paths, name)
		}
		w := rs.checkNamed(n, &left)
		if left < 0 && !v.Denied() {
			return Verdict{Paths: paths}, chat.Invalid("cannot check %s: want at most %d steps "+
				"of comparing paths with rules in a question", chat.Quote(n.Text), MaxSteps)
		}
		if !v.Denied() && (w.Denied() || v.Rule == nil && w.Rule != nil) {
			v = w
		}
	}
	v.Paths = paths
	return v, nil
}

// checkNamed checks one path, and takes what this costs at most from left. It checks nothing if
// less is left.
func (rs *Ruleset) checkNamed(n chat.NamedPath, left *int) (v Verdict) {
	text := n.Text
	var word []segment
	if n.Glob {
		word = wordSegments(n.Text)
		text = newMatcher(word).Prefix
		*left -= (rs.matchers + rs.bytes) * len(n.Text)
	}
	names := rs.names(text)
	for _, name := range names {
		*left -= rs.matchers * len(name)
		if len(name) < pathMax {
			*left -= rs.matchers * len(name) * (1 + strings.Count(name, "/"))
		}
	}
	switch {
	case *left < 0:
		return v
	case n.Glob:
		v = rs.checkGlob(path.Clean(UnescapeGlob(n.Text)), word)
	default:
		v = rs.check(names, Bash)
	}
	if held := rs.checkKernel(names, Bash); !v.Denied() && held.Denied() {
		v = held
	}
	return v
}
