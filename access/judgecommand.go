package access

import (
	"cmp"
	"path"
	"slices"
)

// JudgeCommand says whether a shell may be given a command: whether each path that
// is found in it is allowed for Bash. Verdict.Paths are those. What was found in a
// command that is not bash to its end is judged; without a deny that is an error.
func (rs *Ruleset) JudgeCommand(command string) (Verdict, error) {
	x := newExtractor()
	return rs.judgeFound(x, x.script(newShell(rs.scope.Home, rs.scope.Cwd), command))
}

// judgeFound judges what was found, up to err.
func (rs *Ruleset) judgeFound(x *extractor, err error) (Verdict, error) {
	v := Verdict{Effect: Allow, Layer: LayerNone}
	for _, f := range x.found {
		w, steps := Verdict{}, 0
		if f.glob {
			w, steps = rs.judgeGlob(f.text, maxSteps-x.spent.steps)
		} else {
			w, steps = rs.judge(f.text, Bash)
		}
		if !w.Denied() {
			held, more := rs.heldBack(f.literal(), Bash, maxSteps-x.spent.steps-steps)
			if steps += more; held.Denied() {
				w = held
			}
		}
		v.Paths = append(v.Paths, path.Clean(f.name()))
		if !v.Denied() && (w.Denied() || v.Rule == nil && w.Rule != nil) {
			w.Paths = v.Paths
			v = w
		}
		if !x.spend(&x.spent.steps, steps, maxSteps, "steps of comparing paths with rules") {
			err = cmp.Or(err, x.tooFar)
			break
		}
	}
	v.Paths = unique(v.Paths)
	if err != nil && !v.Denied() {
		return Verdict{Paths: v.Paths}, err
	}
	return v, nil
}

func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		twice := seen[s]
		seen[s] = true
		return twice
	})
}

// found is one path of a command, absolute and not folded; a glob is escaped as
// package doublestar wants it.
type found struct {
	text string
	glob bool
}

// literal is the path, or the directory that all a glob stands for is in.
func (f found) literal() string {
	if f.glob {
		return newMatcher(wordSegments(f.text)).Prefix
	}
	return f.text
}

func (f found) name() string {
	if f.glob {
		return unescapeGlob(f.text)
	}
	return f.text
}
