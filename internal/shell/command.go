package shell

import (
	"cmp"
	"maps"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Bounds on a command that is checked. The parser is recursive.
const (
	maxCommand = 128 << 10
	maxFound   = chat.MaxNamed
	maxScripts = 8    // scripts within scripts: bash -c "bash -c …"
	maxWords   = 1000 // that one word of a command stands for
	maxScript  = 1 << 20
	// maxOpen bounds what may be open within each other, as the parser's stack does not:
	// 128 KiB of ( took 500 MB of it (v3.14.1, tried).
	maxOpen = 8192
)

// shell is what a shell knows while it goes through a script.
type shell struct {
	home, cwd string
	vars      map[string][]word
	// from are the programs whose output it reads, stdin that output if it is known.
	from  []string
	stdin *string
	// toFile means that its output goes to a file.
	toFile bool
	// sizes are the bytes of the variables that were set here, and not in a shell around it.
	sizes map[string]int
}

func newShell(home, cwd string) *shell {
	return &shell{home: home, cwd: cwd, vars: map[string][]word{}}
}

func (sh *shell) sub() *shell {
	return &shell{home: sh.home, cwd: sh.cwd, vars: maps.Clone(sh.vars), from: sh.from, stdin: sh.stdin,
		toFile: sh.toFile}
}

// extractor goes through a script in the order in which a shell does, and gathers paths.
type extractor struct {
	found  []chat.NamedPath
	seen   map[chat.NamedPath]bool
	depth  int
	read   int   // bytes of scripts
	tooFar error // why not everything was found
	spent  spending
	gathering
}

// add takes a word for a path.
func (x *extractor) add(sh *shell, w word) {
	if !w.literal || w.plain() == "" {
		return
	}
	f := chat.NamedPath{Text: filerules.Absolute(sh.home, sh.cwd, w.name())}
	if w.glob {
		f = chat.NamedPath{Text: filerules.Absolute(filerules.EscapeGlob(sh.home),
			filerules.EscapeGlob(sh.cwd), w.text), Glob: true}
	}
	if x.seen[f] {
		if !x.naming {
			delete(x.programs, f) // it is more than a program's name
		}
		return
	}
	if len(x.found) == maxFound || len(f.Text) > chat.MaxNamedPath {
		x.tooFar = tooMuch("at most %d paths of at most %d bytes", maxFound, chat.MaxNamedPath)
		return
	}
	if !x.spendBytes(len(f.Text)) ||
		!x.spend(&x.spent.found, len(f.Text), chat.MaxNamedBytes, "bytes of paths") {
		return
	}
	x.seen[f] = true
	x.found = append(x.found, f)
}

func newExtractor() *extractor { return &extractor{seen: map[chat.NamedPath]bool{}} }

// script goes through a script; what comes before a mistake in it is gone through too,
// as a shell would.
func (x *extractor) script(sh *shell, text string) error {
	x.read += len(text)
	switch {
	case x.depth == maxScripts:
		return tooMuch("at most %d scripts within each other", maxScripts)
	case len(text) > maxCommand || strings.IndexByte(text, 0) >= 0:
		return tooMuch("at most %d bytes and no NUL", maxCommand)
	case strings.Count(text, "(")+strings.Count(text, "{")+strings.Count(text, "`") > maxOpen:
		return tooMuch("at most %d of ( { ` in it", maxOpen)
	case x.read > maxScript:
		return tooMuch("scripts of at most %d bytes in all", maxScript)
	}
	x.depth++
	defer func() { x.depth-- }()
	var wrong error
	for stmt, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(strings.NewReader(text)) {
		switch { // no break: StmtsSeq of v3.14.1 goes on after it, and panics
		case wrong != nil || x.tooFar != nil:
		case err != nil:
			wrong = chat.Invalid("cannot parse the command: %v", err)
		default:
			x.stmt(sh, stmt)
		}
	}
	return cmp.Or(wrong, x.tooFar)
}

func (x *extractor) stmts(sh *shell, list []*syntax.Stmt) {
	for _, s := range list {
		if x.tooFar == nil {
			x.stmt(sh, s)
		}
	}
}

func (x *extractor) stmt(sh *shell, s *syntax.Stmt) {
	if s == nil {
		return
	}
	defer x.withRedirects(sh, s)()
	if s.Background || s.Coprocess {
		sh = x.sub(sh)
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		x.call(sh, c)
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			x.pipe(sh, c)
		} else {
			x.stmts(sh, []*syntax.Stmt{c.X, c.Y})
		}
	case *syntax.Block:
		x.stmts(sh, c.Stmts)
	case *syntax.Subshell:
		x.stmts(x.sub(sh), c.Stmts)
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			x.stmts(sh, c.Cond)
			x.stmts(sh, c.Then)
		}
	case *syntax.WhileClause:
		x.stmts(sh, c.Cond)
		x.stmts(sh, c.Do)
	case *syntax.ForClause:
		x.loop(sh, c)
	case *syntax.CaseClause:
		x.words(sh, c.Word, true)
		for _, item := range c.Items {
			x.stmts(sh, item.Stmts)
		}
	case *syntax.FuncDecl:
		x.function(sh, c)
	case *syntax.TimeClause:
		x.stmt(sh, c.Stmt)
	case *syntax.CoprocClause:
		x.stmt(x.sub(sh), c.Stmt)
	case *syntax.DeclClause:
		for _, a := range c.Args {
			x.assign(sh, a, true)
		}
	case *syntax.TestClause:
		x.test(sh, c.X)
	case nil:
	default:
		x.inner(sh, c)
	}
}

func (x *extractor) loop(sh *shell, c *syntax.ForClause) {
	if iter, ok := c.Loop.(*syntax.WordIter); ok {
		var all []word
		for _, item := range iter.Items {
			for _, w := range x.arg(sh, item) {
				all = append(all, w)
				x.maybe(sh, w)
			}
		}
		x.set(sh, iter.Name.Value, all)
	} else {
		x.inner(sh, c.Loop)
	}
	x.stmts(sh, c.Do)
}

// inner goes through the command substitutions of something that has no paths itself.
func (x *extractor) inner(sh *shell, n syntax.Node) {
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			x.stmts(x.sub(sh), n.Stmts)
		case *syntax.ProcSubst:
			x.stmts(x.sub(sh), n.Stmts)
		default:
			return true
		}
		return false
	})
}

// assign takes the value of an assignment; keep says that the shell knows it from then on.
func (x *extractor) assign(sh *shell, a *syntax.Assign, keep bool) {
	values := x.words(sh, a.Value, false)
	if a.Array != nil {
		for _, e := range a.Array.Elems {
			if e.Value != nil {
				values = append(values, x.arg(sh, e.Value)...)
			}
		}
	}
	for _, v := range values {
		for _, part := range v.list() {
			x.maybe(sh, part)
		}
	}
	if !keep || a.Name == nil || a.Naked {
		return
	}
	if a.Append || a.Index != nil {
		values = append(values, sh.vars[a.Name.Value]...)
	}
	x.set(sh, a.Name.Value, values)
}

func (x *extractor) test(sh *shell, e syntax.TestExpr) {
	switch e := e.(type) {
	case *syntax.UnaryTest:
		w, ok := e.X.(*syntax.Word)
		if !ok {
			x.test(sh, e.X)
			return
		}
		for _, w := range x.words(sh, w, false) {
			if !textTests[e.Op.String()] {
				x.add(sh, w)
			}
		}
	case *syntax.BinaryTest:
		x.test(sh, e.X)
		x.test(sh, e.Y)
	case *syntax.ParenTest:
		x.test(sh, e.X)
	case *syntax.Word:
		for _, w := range x.words(sh, e, false) {
			x.maybe(sh, w)
		}
	}
}

func (x *extractor) call(sh *shell, c *syntax.CallExpr) {
	defer x.open()()
	ran := x.watch()
	for _, a := range c.Assigns {
		x.assign(sh, a, len(c.Args) == 0)
	}
	var args []word
	for _, a := range c.Args {
		if x.tooFar != nil {
			return
		}
		args = append(args, x.arg(sh, a)...)
	}
	x.scope.within = ran()
	x.run(sh, args)
}
