package shell

import (
	"cmp"
	"slices"

	"github.com/chatd/chatd/access"
)

// JudgeCommand says whether a shell may be given a command: whether the rules allow each
// path that is found in it for Bash. Verdict.Paths are those. What was found in a
// command that is not bash to its end is judged; without a deny that is an error.
func JudgeCommand(rs *access.Ruleset, command string) (access.Verdict, error) {
	x := newExtractor()
	return x.judge(rs, x.script(newShell(rs.Scope().Home, rs.Scope().Cwd), command))
}

// JudgeCommandIn is [JudgeCommand] for a shell that is started in a directory, which
// is judged too. Relative patterns stand below the working directory of the scope.
func JudgeCommandIn(rs *access.Ruleset, dir, command string) (access.Verdict, error) {
	x := startIn(rs, dir)
	return x.judge(rs, x.script(newShell(rs.Scope().Home, dir), command))
}

// JudgeArgv is [JudgeCommand] for a program that no shell starts: whether each
// path that is found among its arguments is allowed for Bash. No ~ is expanded in them.
func JudgeArgv(rs *access.Ruleset, argv []string) (access.Verdict, error) {
	return newExtractor().judgeArgv(rs, rs.Scope().Cwd, argv)
}

// JudgeArgvIn is JudgeArgv for a program that is started in a directory, which is judged too.
func JudgeArgvIn(rs *access.Ruleset, dir string, argv []string) (access.Verdict, error) {
	return startIn(rs, dir).judgeArgv(rs, dir, argv)
}

// startIn has found the directory that a command is started in.
func startIn(rs *access.Ruleset, dir string) *extractor {
	x := newExtractor()
	x.add(newShell(rs.Scope().Home, rs.Scope().Cwd), quoted(dir))
	return x
}

func (x *extractor) judgeArgv(rs *access.Ruleset, cwd string, argv []string) (access.Verdict, error) {
	args := make([]word, len(argv))
	for i, a := range argv {
		args[i] = quoted(a)
	}
	x.run(newShell(rs.Scope().Home, cwd), args)
	return x.judge(rs, x.tooFar)
}

// judge judges what was found, up to err.
func (x *extractor) judge(rs *access.Ruleset, err error) (access.Verdict, error) {
	v := access.Verdict{Effect: access.Allow, Layer: access.LayerNone}
	for _, f := range x.found {
		w, steps := rs.JudgeFound(f, access.MaxSteps-x.spent.steps)
		v.Paths = append(v.Paths, f.Name())
		if !v.Denied() && (w.Denied() || v.Rule == nil && w.Rule != nil) {
			w.Paths = v.Paths
			v = w
		}
		if !x.spend(&x.spent.steps, steps, access.MaxSteps, "steps of comparing paths with rules") {
			err = cmp.Or(err, x.tooFar)
			break
		}
	}
	v.Paths = unique(v.Paths)
	if err != nil && !v.Denied() {
		return access.Verdict{Paths: v.Paths}, err
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
