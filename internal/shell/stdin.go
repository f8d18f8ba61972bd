package shell

import (
	"encoding/base64"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// withRedirects opens the files of a statement for its command; undo closes them.
func (x *extractor) withRedirects(sh *shell, s *syntax.Stmt) (undo func()) {
	stdin, from, toFile, writes := sh.stdin, sh.from, sh.toFile, x.scope.writes
	x.scope.writes = nil
	x.redirects(sh, s.Redirs)
	if _, call := s.Cmd.(*syntax.CallExpr); !call && len(x.scope.writes) > 0 {
		x.emit(sh, nil)
	}
	return func() { sh.stdin, sh.from, sh.toFile, x.scope.writes = stdin, from, toFile, writes }
}

// reads makes a text what the command reads.
func (sh *shell) reads(text *string) { sh.stdin, sh.from = text, nil }

// document is the text of a here-document; what is not known in it is $_.
func document(w *syntax.Word) *string {
	var b strings.Builder
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			b.WriteString(doubleQuoted(lit.Value))
			continue
		}
		b.WriteString("$_")
	}
	text := b.String()
	return &text
}

// pipe goes through a | b; b reads what a prints.
func (x *extractor) pipe(sh *shell, c *syntax.BinaryCmd) {
	ran := x.watch()
	x.output = nil
	x.stmt(x.sub(sh), c.X)
	right := x.sub(sh)
	right.reads(x.outputOf(c.X))
	right.from = names(sh.from, ran())
	x.stmt(right, c.Y)
}

// outputOf is what a statement prints, if that is known.
func (x *extractor) outputOf(s *syntax.Stmt) *string {
	if s == nil {
		return nil
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		return x.output
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe {
			return x.output
		}
	}
	return nil
}

// substituted is the word that a command substitution becomes.
func (x *extractor) substituted(sh *shell, c *syntax.CmdSubst, split bool) word {
	x.output = nil
	x.stmts(x.sub(sh), c.Stmts)
	if len(c.Stmts) != 1 || len(c.Stmts[0].Redirs) > 0 {
		return unknown
	}
	said := x.outputOf(c.Stmts[0])
	if said == nil {
		return unknown
	}
	w := known(strings.TrimRight(*said, "\n"))
	if split {
		w = w.unquote()
	}
	return w
}

// output is what a program prints if that can be known.
func output(sh *shell, name string, args []word) *string {
	var text []string
	for _, w := range args {
		if w.glob {
			return nil
		}
		text = append(text, w.plain())
	}
	said := ""
	switch name {
	case "echo":
		for len(text) > 0 && slices.Contains([]string{"-n", "-e", "-E", "-ne", "-en"}, text[0]) {
			text = text[1:]
		}
		said = strings.Join(text, " ")
		if strings.Contains(said, `\`) {
			said = format(strings.ReplaceAll(said, "%", "%%"), nil)
		}
	case "printf":
		if len(text) > 0 && text[0] == "--" {
			text = text[1:]
		}
		if len(text) == 0 {
			return nil
		}
		said = format(text[0], text[1:])
	case "cat":
		if len(text) > 0 && !IsStdin(text[0]) && !strings.HasPrefix(text[0], "-s") {
			return nil
		}
		return sh.stdin
	case "pwd":
		said = sh.cwd
	case "base64":
		return decoded(sh, text)
	default:
		return nil
	}
	return &said
}

func format(text string, args []string) string {
	out, _, err := expand.Format(nil, text, args)
	if err != nil {
		return text
	}
	return out
}

func decoded(sh *shell, args []string) *string {
	if sh.stdin == nil || len(args) != 1 ||
		!slices.Contains([]string{"-d", "-D", "--decode", "-di"}, args[0]) {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(*sh.stdin))
	if err != nil {
		return nil
	}
	text := string(b)
	return &text
}

// function goes through the body of a function, whether or not it is ever called.
func (x *extractor) function(sh *shell, c *syntax.FuncDecl) {
	if c.Name != nil && x.bomb(c.Body, c.Name.Value) {
		x.scope.uses |= UseForkBomb
	}
	x.stmt(x.sub(sh), c.Body)
}

// bomb reports a body that starts the function of this name in a pipeline or in the
// background.
func (x *extractor) bomb(body *syntax.Stmt, name string) bool {
	starts := func(s *syntax.Stmt) bool {
		c, ok := s.Cmd.(*syntax.CallExpr)
		return ok && len(c.Args) > 0 && c.Args[0].Lit() == name
	}
	found := false
	syntax.Walk(body, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			found = found || n.Background && starts(n)
		case *syntax.BinaryCmd:
			found = found || (n.Op == syntax.Pipe || n.Op == syntax.PipeAll) && (starts(n.X) || starts(n.Y))
		}
		return !found && x.spend(&x.spent.looks, 1, maxLooks, "functions within each other")
	})
	return found
}

// positional makes the operands of a script its $0, $1, … and $@.
func (sh *shell) positional(args []word) {
	for i, w := range args {
		if i < 10 {
			sh.vars[string(rune('0'+i))] = []word{w}
		}
	}
	if len(args) > 1 {
		sh.vars["@"], sh.vars["*"] = args[1:], args[1:]
	}
}

// redirects takes the files; the body of a here-document is data, except for the
// commands that the shell runs to write it.
func (x *extractor) redirects(sh *shell, list []*syntax.Redirect) {
	for _, r := range list {
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			if r.Hdoc != nil {
				x.inner(sh, r.Hdoc)
				sh.reads(document(r.Hdoc))
			}
		case syntax.WordHdoc:
			sh.reads(nil)
			if list := x.words(sh, r.Word, false); len(list) == 1 && !list[0].glob {
				text := list[0].plain()
				sh.reads(&text)
			}
		default:
			if r.Op == syntax.RdrIn {
				sh.reads(nil)
			}
			for _, w := range x.arg(sh, r.Word) {
				if dup := r.Op == syntax.DplOut || r.Op == syntax.DplIn; !dup ||
					strings.Trim(w.text, "0123456789-") != "" {
					x.add(sh, w)
					if r.Op != syntax.RdrIn {
						sh.toFile = true
						x.writeTo(sh, w)
					}
				}
			}
		}
	}
}
