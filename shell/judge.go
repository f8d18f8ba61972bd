package shell

import (
	"cmp"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Named are the paths that a shell command names, which starts in cwd; both directories are
// absolute. With an error come the paths that were found before it.
func Named(home, cwd, command string) ([]chat.NamedPath, error) {
	x := newExtractor()
	err := x.script(newShell(home, cwd), command)
	return x.found, err
}

// NamedByArgv is [Named] for a program that no shell starts. No ~ is expanded in its arguments.
func NamedByArgv(home, cwd string, argv []string) ([]chat.NamedPath, error) {
	args := make([]word, len(argv))
	for i, a := range argv {
		args[i] = quoted(a)
	}
	x := newExtractor()
	x.run(newShell(home, cwd), args)
	return x.found, x.tooFar
}

// JudgeCommand says whether a shell may be given a command: whether the rules allow each
// path that is found in it for Bash. Verdict.Paths are those. What was found in a
// command that is not bash to its end is judged; without a deny that is an error.
func JudgeCommand(rs *filerules.Ruleset, command string) (filerules.Verdict, error) {
	named, err := Named(rs.Scope().Home, rs.Scope().Cwd, command)
	return judge(rs, named, err)
}

// JudgeArgv is [JudgeCommand] for a program that no shell starts: whether each
// path that is found among its arguments is allowed for Bash. No ~ is expanded in them.
func JudgeArgv(rs *filerules.Ruleset, argv []string) (filerules.Verdict, error) {
	named, err := NamedByArgv(rs.Scope().Home, rs.Scope().Cwd, argv)
	return judge(rs, named, err)
}

// judge judges what was found, up to err.
func judge(rs *filerules.Ruleset, named []chat.NamedPath, found error) (filerules.Verdict, error) {
	v, err := rs.JudgeNamed(named)
	if err = cmp.Or(found, err); err != nil && !v.Denied() {
		return filerules.Verdict{Paths: v.Paths}, err
	}
	return v, nil
}
