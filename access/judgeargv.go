package access

// JudgeArgv is [Ruleset.JudgeCommand] for a program that no shell starts: whether each
// path that is found among its arguments is allowed for Bash. No ~ is expanded in them.
func (rs *Ruleset) JudgeArgv(argv []string) (Verdict, error) {
	return rs.argv(newExtractor(), rs.scope.Cwd, argv)
}

// JudgeArgvIn is JudgeArgv for a program that is started in a directory, which is judged too.
func (rs *Ruleset) JudgeArgvIn(dir string, argv []string) (Verdict, error) {
	return rs.argv(rs.startIn(dir), dir, argv)
}

// JudgeCommandIn is [Ruleset.JudgeCommand] for a shell that is started in a directory, which
// is judged too. Relative patterns stand below the working directory of the scope.
func (rs *Ruleset) JudgeCommandIn(dir, command string) (Verdict, error) {
	x := rs.startIn(dir)
	return rs.judgeFound(x, x.script(newShell(rs.scope.Home, dir), command))
}

// startIn has found the directory that a command is started in.
func (rs *Ruleset) startIn(dir string) *extractor {
	x := newExtractor()
	x.add(newShell(rs.scope.Home, rs.scope.Cwd), quoted(dir))
	return x
}

func (rs *Ruleset) argv(x *extractor, cwd string, argv []string) (Verdict, error) {
	args := make([]word, len(argv))
	for i, a := range argv {
		args[i] = quoted(a)
	}
	x.run(newShell(rs.scope.Home, cwd), args)
	return rs.judgeFound(x, x.tooFar)
}
