package shell

import (
	"path"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Use is a set of things that a command has the shell do.
type Use uint8

const (
	// UseSubstitution is $(…), UseBackquotes `…`, and UseBraces ${…}.
	UseSubstitution Use = 1 << iota
	UseBackquotes
	UseBraces
	// UseForkBomb is a function that starts itself in a pipeline or in the background.
	UseForkBomb
)

// Arg is a word of a command after quotes are taken away and constants are put in.
type Arg struct {
	// Text is the word, with * in place of unknown parts.
	Text string
	// Pattern is the word as path.Match wants it if it has wildcards or something
	// unknown; empty if Text is all there is.
	Pattern string
	// Unknown says that nothing of it can be known.
	Unknown bool
}

// Call is one simple command of a script. A command that starts another one, as
// timeout, xargs or find -exec, is followed by a Call of that one.
type Call struct {
	// Args begin with the program. There are none where only files are opened, or
	// something is computed, without a program.
	Args      []Arg
	Home, Cwd string
	// Writes are the files that redirects open for writing, absolute and folded.
	Writes []Arg
	// From are the programs before it in its pipeline, Within those in its substitutions.
	From, Within []string
	Uses         Use
}

// Walk is the result of walking a command.
type Walk struct {
	// Calls are in the order in which a shell comes to them.
	Calls []Call
	// Paths are absolute and folded, globs as they are. The names of the programs
	// themselves are not among them.
	Paths []string
}

// Calls walks a shell command with this home and cwd. On an error it returns what it found before.
func Calls(command, home, cwd string) (Walk, error) {
	x := newExtractor()
	x.gather = true
	err := x.script(newShell(home, cwd), command)
	x.emit(newShell(home, cwd), nil) // what is computed outside of any command
	return x.walked(), err
}

// CallsOf is Calls for a program that no shell starts.
func CallsOf(argv []string, home, cwd string) (Walk, error) {
	x := newExtractor()
	x.gather = true
	args := make([]word, len(argv))
	for i, a := range argv {
		args[i] = known(a)
	}
	x.run(newShell(home, cwd), args)
	return x.walked(), x.tooFar
}

func (x *extractor) walked() Walk {
	w, seen := Walk{Calls: x.calls}, map[string]bool{}
	for _, f := range x.found {
		if name := filerules.NameOf(f); !x.programs[f] && !seen[name] {
			seen[name] = true
			w.Paths = append(w.Paths, name)
		}
	}
	return w
}

// scope is what is gathered for the simple command at hand.
type scope struct {
	uses   Use
	writes []Arg
	within []string
}

// gathering is what [Calls] wants to know.
type gathering struct {
	gather   bool
	calls    []Call
	programs map[chat.NamedPath]bool // found as names of programs alone
	naming   bool                    // what is added now is one
	ran      []string                // programs since the last watch, each once; maxNames of them
	scope    scope
	output   *string // what the last program prints, if that is known
}

// maxNames bounds how many programs before a command are told apart.
const maxNames = 64

// open begins a simple command, with the redirects that were just read.
func (x *extractor) open() (restore func()) {
	old := x.scope
	x.scope = scope{writes: old.writes}
	return func() { x.scope = old }
}

// emit takes down one simple command; what the shell does for it counts once.
func (x *extractor) emit(sh *shell, args []word) {
	if !x.gather || len(args) == 0 && x.scope.uses == 0 && len(x.scope.writes) == 0 {
		return
	}
	if len(x.calls) == maxFound {
		x.tooFar = tooMuch("at most %d commands in it", maxFound)
		return
	}
	c := Call{Home: sh.home, Cwd: sh.cwd, From: sh.from, Uses: x.scope.uses, Writes: x.scope.writes,
		Within: x.scope.within}
	for _, w := range args {
		c.Args = append(c.Args, w.arg())
	}
	x.calls = append(x.calls, c)
	x.scope.uses, x.scope.writes = 0, nil
}

func (w word) arg() Arg {
	if w.glob {
		return Arg{Text: filerules.UnescapeGlob(w.text), Pattern: w.text, Unknown: !w.literal}
	}
	return Arg{Text: w.name()}
}

// program takes down which program runs, and its file if it is named by one.
func (x *extractor) program(sh *shell, w word) {
	x.output = nil
	if !x.gather {
		x.maybe(sh, w)
		return
	}
	before := len(x.found)
	x.naming = true
	x.maybe(sh, w)
	x.naming = false
	if len(x.found) > before {
		if x.programs == nil {
			x.programs = map[chat.NamedPath]bool{}
		}
		x.programs[x.found[before]] = true
	}
	x.ran = names(x.ran, []string{path.Base(w.plain())})
}

// watch records the programs that run from now on until ran is called. Each watch keeps its own
// list: a pipeline of n parts would otherwise go n times through all that ran.
func (x *extractor) watch() (ran func() []string) {
	before := x.ran
	x.ran = nil
	return func() []string {
		since := x.ran
		x.ran = names(before, since)
		return since
	}
}

// names adds programs to a list, each once.
func names(list, more []string) []string {
	list = slices.Clip(list)
	for _, m := range more {
		if len(list) < maxNames && !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// writeTo takes down a file that a redirect opens.
func (x *extractor) writeTo(sh *shell, w word) {
	if x.gather && w.literal {
		a := w.arg()
		a.Text = filerules.Fold(sh.home, sh.cwd, a.Text)
		if w.glob {
			a.Pattern = path.Clean(filerules.Absolute(filerules.EscapeGlob(sh.home),
				filerules.EscapeGlob(sh.cwd), w.text))
		}
		x.scope.writes = append(x.scope.writes, a)
	}
}

// IsStdin reports a name of what is read without a file.
func IsStdin(s string) bool {
	return s == "-" || s == "/dev/stdin" || s == "/dev/fd/0" || s == "/proc/self/fd/0"
}
