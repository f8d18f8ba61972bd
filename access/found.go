package access

import "path"

// MaxSteps bounds the comparing of one question with the rules: some nanoseconds each.
const MaxSteps = 1 << 26

// Found is a path that was found in a command: absolute and not folded.
type Found struct {
	Text string
	// Glob: Text has wildcards, and is escaped as package doublestar wants it.
	Glob bool
}

// Name is the path folded, a glob as it was written.
func (f Found) Name() string {
	if f.Glob {
		return path.Clean(UnescapeGlob(f.Text))
	}
	return path.Clean(f.Text)
}

// literal is the path, or the directory that all a glob stands for is in.
func (f Found) literal() string {
	if f.Glob {
		return newMatcher(wordSegments(f.Text)).Prefix
	}
	return f.Text
}

// JudgeFound says whether a command may have the path: whether it is allowed for [Bash], and
// the kernel does not refuse it all the same. It also says how many steps that took. After
// more than most it stops.
func (rs *Ruleset) JudgeFound(f Found, most int) (v Verdict, steps int) {
	if f.Glob {
		v, steps = rs.judgeGlob(f.Text, most)
	} else {
		v, steps = rs.judge(f.Text, Bash)
	}
	if v.Denied() {
		return v, steps
	}
	held, more := rs.heldBack(f.literal(), Bash, most-steps)
	if held.Denied() {
		v = held
	}
	return v, steps + more
}
