package shell

import (
	"path"
	"strings"

	"github.com/chatd/chatd/filerules"
)

// arguments goes through the arguments of one program.
type arguments struct {
	x      *extractor
	begun  *shell // the shell that runs it
	sh     *shell // one of its own once the program was told another directory
	name   string
	isFile bool
	text   bool // the next operand is an expression and no file
	looks  bool // operands choose among what git tracks
}

// operands goes through the arguments of a program.
func (x *extractor) operands(sh *shell, name string, args []word) {
	a := arguments{x: x, begun: sh, sh: sh, name: name, isFile: filePrograms[name], text: firstIsText[name],
		looks: name == "git" && looks(args)}
	ended := false
	for i := 0; i < len(args); i++ {
		switch w := args[i]; {
		case !ended && w.plain() == "--":
			ended = true
		case !ended && isOption(w):
			if a.option(w, first(args[i+1:])) {
				i++
			}
		case a.text || name == "tar" && i == 0 && !strings.Contains(w.text, "/"):
			a.text = false
		default:
			a.operand(w)
		}
	}
}

// first is the first of some words, or none.
func first(args []word) (w word) {
	if len(args) > 0 {
		w = args[0]
	}
	return w
}

// option goes through an option, and reports whether next is its value.
func (a *arguments) option(w, next word) (took bool) {
	l := letter(w)
	if took, ok := a.valued(w, next); ok {
		return took
	}
	long, _, glued := strings.Cut(w.plain(), "=")
	switch {
	case patternOptions[long]:
		return !glued
	case l != 0 && strings.IndexByte(scriptOptions[a.name], l) >= 0:
		a.text = false
		return true
	case l != 0 && strings.IndexByte(valueOptions[a.name], l) >= 0:
		return true
	case l == 'f' && firstIsText[a.name]:
		a.text = false
	default:
		a.x.option(a.sh, w)
	}
	return false
}

// valued goes through an option for a directory to work in or for a file, if w is one.
func (a *arguments) valued(w, next word) (took, ok bool) {
	value, took, ok := valueOf(w, next, baseOptions[a.name])
	if ok {
		a.base(value)
	} else if value, took, ok = valueOf(w, next, fileOptions[a.name]); ok {
		a.file(value)
	}
	return took, ok
}

// base has what follows lie below dir.
func (a *arguments) base(dir word) {
	a.x.add(a.sh, dir)
	a.sh = a.x.sub(a.sh)
	if !dir.glob {
		a.sh.cwd = path.Clean(filerules.Absolute(a.sh.home, a.sh.cwd, dir.name()))
	}
}

// file takes the value of an option for a file: f, or of curl @f and name=@f;type=…. It is
// opened from where the program was started.
func (a *arguments) file(w word) {
	if a.name != "curl" {
		if w.plain() != "-" {
			a.x.add(a.begun, w)
		}
		return
	}
	text, _, _ := strings.Cut(w.text, ";")
	at := strings.IndexAny(text, "@<")
	if at < 0 {
		return // data
	}
	if name := text[at+1:]; name != "-" {
		a.x.add(a.begun, word{name, w.glob, w.literal})
	}
}

// looks reports a verb of git that only looks, and rm of the index alone.
func looks(args []word) bool {
	verb, has := "", map[string]bool{}
	for i := 0; i < len(args); i++ {
		s := args[i].plain()
		switch has[s] = true; {
		case verb == "" && (s == "-C" || s == "-c"):
			i++
		case verb == "" && !isOption(args[i]):
			verb = s
		}
	}
	return gitLooks[verb] && !has["--no-index"] || verb == "rm" && has["--cached"]
}

func (a *arguments) operand(w word) {
	if a.looks && !explicit(w.text) {
		return
	}
	if value, ok := assigned(w); ok && a.isFile {
		a.x.add(a.sh, value)
		return
	}
	if objectPrograms[a.name] && !explicit(w.text) || remotePrograms[a.name] && elsewhere(w.text) ||
		a.name == "git" && !explicit(w.text) && strings.Contains(w.text, ":") {
		return
	}
	if a.isFile && !strings.Contains(w.text, "://") && !strings.HasPrefix(w.text, "@") {
		a.x.add(a.sh, w)
		return
	}
	a.x.maybe(a.sh, w)
}

// explicit reports a path that says so itself.
func explicit(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~/") || strings.HasPrefix(s, "./") ||
		strings.HasPrefix(s, "../")
}

// valueOf is the value of an option that is one of some words, as "C directory": glued to its
// letter, behind =, or the next word.
func valueOf(w, next word, options string) (value word, took, ok bool) {
	s := w.plain()
	for o := range strings.FieldsSeq(options) {
		switch long := "--" + o; {
		case len(o) > 1 && s == long:
			return next, true, true
		case len(o) > 1 && strings.HasPrefix(s, long+"="):
			return word{strings.TrimPrefix(w.text, long+"="), w.glob, true}, false, true
		case len(o) == 1 && letter(w) == o[0]:
			return next, true, true
		case len(o) == 1 && strings.HasPrefix(s, "-"+o) && !strings.HasPrefix(s, "--"):
			return word{strings.TrimPrefix(w.text, "-"+o), w.glob, true}, false, true
		}
	}
	return word{}, false, false
}
