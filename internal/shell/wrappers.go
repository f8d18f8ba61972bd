package shell

import (
	"slices"
	"strings"
)

// alias goes through the commands that alias gives names.
func (x *extractor) alias(sh *shell, args []word) {
	for _, w := range args {
		if value, ok := assigned(w); ok {
			x.nested(x.sub(sh), value.plain())
		}
	}
}

// trap goes through the command that trap runs later.
func (x *extractor) trap(sh *shell, args []word) {
	for len(args) > 0 && args[0].plain() == "--" {
		args = args[1:]
	}
	if len(args) > 1 && args[0].plain() != "-" {
		x.nested(x.sub(sh), args[0].plain())
	}
}

// wrapped runs what stands behind the wrapper's own options and operands.
func (x *extractor) wrapped(sh *shell, name string, args []word) {
	a := arguments{x: x, begun: sh, sh: sh, name: name}
	skip := 0
	if secondIsCommand[name] {
		skip = 1
	}
	for i := 0; i < len(args); i++ {
		w := args[i]
		_, isAssigned := assigned(w)
		switch {
		case w.plain() == "--":
		case isOption(w):
			if l := letter(w); name == "command" && (l == 'v' || l == 'V') {
				skip = len(args) // it only looks for them
			}
			if a.wrapperOption(w, first(args[i+1:])) {
				i++
			}
		case isAssigned && skip == 0:
			x.maybe(a.sh, w)
		case skip > 0:
			skip--
			x.maybe(a.sh, w)
		case name == "watch":
			x.eval(a.sh, args[i:])
			return
		case name == "xargs" && sh.stdin != nil:
			x.run(a.sh, append(slices.Clip(args[i:]), known(*sh.stdin).unquote().fields()...))
			return
		default:
			x.run(a.sh, args[i:])
			return
		}
	}
}

// wrapperOption goes through an option of a wrapper, and reports whether next is its value: a script,
// as of env -S and su -c, a directory to work in, a file, or something else.
func (a *arguments) wrapperOption(w, next word) (took bool) {
	option, script, joined := strings.Cut(w.plain(), "=")
	if slices.Contains(strings.Fields(commandOptions[a.name]), option) {
		if !joined {
			script = next.plain()
		}
		a.x.nested(a.x.sub(a.sh), script)
		return !joined
	}
	if took, ok := a.valued(w, next); ok {
		return took
	}
	a.x.option(a.sh, w)
	if took = takesValue(a.name, w); took {
		a.x.maybe(a.sh, next)
	}
	return took
}

// takesValue reports an option of a wrapper that is followed by its value.
func takesValue(name string, w word) bool {
	if long, ok := strings.CutPrefix(w.plain(), "--"); ok {
		return longValues[name][long]
	}
	l := letter(w)
	return l != 0 && strings.IndexByte(valueOptions[name], l) >= 0
}

// shellArgs goes through the script of -c, or takes the script's file.
func (x *extractor) shellArgs(sh *shell, args []word) {
	script := false
	for i, w := range args {
		switch {
		case !script && (IsStdin(w.plain()) || strings.HasPrefix(w.plain(), "-s")):
		case isOption(w):
			script = script || letter(w) != 0 && strings.Contains(w.plain(), "c")
			x.option(sh, w)
		default:
			if script {
				inner := x.sub(sh)
				inner.positional(args[i+1:])
				x.nested(inner, w.plain())
			} else {
				x.add(sh, w)
			}
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
	text := make([]string, len(args))
	for i, w := range args {
		text[i] = w.plain()
	}
	x.nested(sh, strings.Join(text, " "))
}
