package access

// JudgeArgv is [Ruleset.JudgeCommand] for a program that no shell starts: whether each
// path that is found among its arguments is allowed for Bash.
func (rs *Ruleset) JudgeArgv(argv []string) (Verdict, error) {
	x := newExtractor()
	args := make([]word, len(argv))
	for i, a := range argv {
		args[i] = known(a)
	}
	x.run(newShell(rs.scope.Home, rs.scope.Cwd), args)
	return rs.judgeFound(x, x.tooFar)
}
