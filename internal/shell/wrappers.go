package shell

import (
	"slices"
	"strings"
)

// later goes through what eval, alias and trap take for a script.
func (x *extractor) later(sh *shell, name string, args []word) {
	switch name {
	case "eval":
		x.eval(sh, args)
	case "alias":
		for _, w := range args {
			if value, ok := assigned(w); ok {
				x.nested(x.sub(sh), value.plain())
			}
		}
	case "trap":
		for len(args) > 0 && args[0].plain() == "--" {
			args = args[1:]
		}
		if len(args) > 1 && args[0].plain() != "-" {
			x.nested(x.sub(sh), args[0].plain())
		}
	}
}

// wrapped runs what stands behind the wrapper's own options and operands.
func (x *extractor) wrapped(sh *shell, name string, args []word, skip int) {
	for i := 0; i < len(args); i++ {
		w := args[i]
		_, isAssigned := assigned(w)
		l := letter(w)
		switch {
		case w.plain() == "--":
		case x.scriptOption(sh, name, args[i:]):
			if !strings.Contains(w.text, "=") {
				i++
			}
		case isOption(w) && baseOptions[name]+fileOptions[name] != "" && x.wrapperOption(&sh, name, args, &i):
		case isOption(w):
			x.option(sh, w)
			if name == "command" && (l == 'v' || l == 'V') {
				skip = len(args) // it only looks for them
			}
			if takesValue(name, w) && i+1 < len(args) {
				i++
				x.maybe(sh, args[i])
			}
		case isAssigned && skip == 0:
			x.maybe(sh, w)
		case skip > 0:
			skip--
			x.maybe(sh, w)
		case name == "watch":
			x.eval(sh, args[i:])
			return
		case name == "xargs" && sh.stdin != nil:
			x.run(sh, append(slices.Clip(args[i:]), known(*sh.stdin).unquote().fields()...))
			return
		default:
			x.run(sh, args[i:])
			return
		}
	}
}

// wrapperOption goes through an option of a wrapper that has a directory to work in, or a
// file, and steps over its value.
func (x *extractor) wrapperOption(sh **shell, name string, args []word, i *int) bool {
	var next word
	if *i+1 < len(args) {
		next = args[*i+1]
	}
	a := arguments{x: x, begun: *sh, sh: *sh, name: name}
	value, took, ok := valueOf(args[*i], next, baseOptions[name])
	if ok {
		a.base(value)
		*sh = a.sh
	} else if value, took, ok = valueOf(args[*i], next, fileOptions[name]); ok {
		a.file(value)
	}
	if took {
		*i++
	}
	return ok
}

// takesValue reports an option of a wrapper that is followed by its value.
func takesValue(name string, w word) bool {
	if long, ok := strings.CutPrefix(w.plain(), "--"); ok {
		return longValues[name][long]
	}
	l := letter(w)
	return l != 0 && strings.IndexByte(valueOptions[name], l) >= 0
}

// scriptOption goes through the script that an option of a wrapper has, as env -S
// and su -c do.
func (x *extractor) scriptOption(sh *shell, name string, args []word) bool {
	s := args[0].plain()
	long, value, joined := strings.Cut(s, "=")
	for _, o := range strings.Fields(commandOptions[name]) {
		switch {
		case s == o && len(args) > 1:
			x.nested(x.sub(sh), args[1].plain())
			return true
		case joined && long == o:
			x.nested(x.sub(sh), value)
			return true
		}
	}
	return false
}

// shellArgs goes through the script of -c, or takes the script's file.
func (x *extractor) shellArgs(sh *shell, args []word) {
	script := false
	for i, w := range args {
		switch {
		case !script && isStdin(w.plain()):
		case isOption(w):
			script = script || letter(w) != 0 && strings.Contains(w.plain(), "c")
			x.option(sh, w)
		case script:
			inner := x.sub(sh)
			inner.positional(args[i+1:])
			x.nested(inner, w.plain())
			for _, w := range args[i+1:] {
				x.maybe(sh, w)
			}
			return
		default:
			x.add(sh, w)
			for _, w := range args[i+1:] {
				x.maybe(sh, w)
			}
			return
		}
	}
	if sh.stdin != nil {
		inner := x.sub(sh)
		inner.reads(nil)
		x.nested(inner, *sh.stdin)
	}
}

// nested goes through a script within the script, as far as it is known.
func (x *extractor) nested(sh *shell, text string) {
	if err := x.script(sh, text); err != nil && x.tooFar == nil {
		x.tooFar = err
	}
}

func (x *extractor) eval(sh *shell, args []word) {
	var text strings.Builder
	for i, w := range args {
		if i > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(w.plain())
	}
	x.nested(sh, text.String())
}
