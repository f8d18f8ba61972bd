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

// CheckCommand reports whether the rules allow a shell command: each path that is found in it, for
// Bash. Verdict.Paths are those. Paths in a command that is not bash to its end are checked;
// without a deny that is an error.
func CheckCommand(rs *filerules.Ruleset, command string) (filerules.Verdict, error) {
	named, err := Named(rs.Scope().Home, rs.Scope().Cwd, command)
	return check(rs, named, err)
}

// CheckArgv is [CheckCommand] for a program that no shell starts: whether each
// path that is found among its arguments is allowed for Bash. No ~ is expanded in them.
func CheckArgv(rs *filerules.Ruleset, argv []string) (filerules.Verdict, error) {
	named, err := NamedByArgv(rs.Scope().Home, rs.Scope().Cwd, argv)
	return check(rs, named, err)
}

// check checks what was found, up to err.
func check(rs *filerules.Ruleset, named []chat.NamedPath, found error) (filerules.Verdict, error) {
	v, err := rs.CheckNamed(named)
	if err = cmp.Or(found, err); err != nil && !v.Denied() {
		return filerules.Verdict{Paths: v.Paths}, err
	}
	return v, nil
}
