package shell

import (
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/filerules"
)

// run goes through one simple command.
func (x *extractor) run(sh *shell, args []word) {
	if !x.spendWords(args) {
		return
	}
	x.emit(sh, args)
	if len(args) == 0 || x.tooFar != nil {
		return
	}
	if args[0].plain() != "." {
		x.program(sh, args[0])
	}
	name, rest := path.Base(args[0].plain()), args[1:]
	skip, wrapper := wrappers[name]
	if strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld.so") {
		wrapper = true
	}
	switch {
	case wrapper:
		x.wrapped(sh, name, rest, skip)
	case shells[name]:
		x.shellArgs(sh, rest)
	case name == "eval" || name == "alias" || name == "trap":
		x.later(sh, name, rest)
	case name == "cd" || name == "pushd" || name == "chdir":
		x.cd(sh, rest)
	case name == "find":
		x.find(sh, rest)
	case name == "test" || name == "[":
		x.testArgs(sh, rest)
	case textPrograms[name]:
		x.texts(sh, rest)
		x.output = output(sh, name, rest)
	default:
		x.operands(sh, name, rest)
		x.output = output(sh, name, rest)
	}
}

// texts goes through arguments that are a text: only what the shell makes names of is one,
// unless the text goes to a file, which may be a script, and says itself that it is a path: .env in
// .gitignore is a pattern.
func (x *extractor) texts(sh *shell, args []word) {
	for _, w := range args {
		if w.glob || sh.toFile && explicit(w.text) {
			x.maybe(sh, w)
		}
	}
}

// maybe takes a word for a path if it looks like one.
func (x *extractor) maybe(sh *shell, w word) {
	s := w.text
	if strings.HasPrefix(s, "file://") {
		w.text, s = s[len("file://"):], s[len("file://"):]
	}
	if strings.HasPrefix(s, "@") {
		w.text, s = s[1:], s[1:]
	}
	if value, ok := assigned(w); ok {
		value.text = strings.TrimPrefix(value.text, "@") // curl -F name=@file
		w, s = value, value.text
	}
	if looksLikePath(s) {
		x.add(sh, w)
	}
}

func looksLikePath(s string) bool {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~/") || strings.HasPrefix(s, "./") ||
		strings.HasPrefix(s, "../") {
		return true
	}
	if strings.ContainsAny(s, " \t\n") {
		return false // a text with a path in it
	}
	if len(s) > 1 && s[0] == '.' && (s[1]|0x20 >= 'a' && s[1]|0x20 <= 'z') {
		return true // .env
	}
	return s == "." || s == ".." || s == "~" || strings.Contains(s, "/") && !strings.Contains(s, "://") &&
		!strings.HasPrefix(s, "+%") && !elsewhere(s)
}

// elsewhere reports host:/path, as scp has it, and rev:path, as git has it.
func elsewhere(s string) bool {
	head, _, there := strings.Cut(s, ":")
	return there && head != "" && !strings.Contains(head, "/")
}

// assigned is the value of a word like if=/x, as dd has it.
func assigned(w word) (word, bool) {
	name, value, ok := strings.Cut(w.text, "=")
	if !ok || strings.ContainsAny(name, "/~") {
		return w, false
	}
	return word{value, w.glob, w.literal}, true
}

// option takes what an option has glued to it: --opt=/x, -I/x, -d@/x.
func (x *extractor) option(sh *shell, w word) {
	if value, ok := assigned(w); ok {
		x.maybe(sh, value)
		return
	}
	if list, ok := strings.CutPrefix(w.text, "-Wl,"); ok {
		for part := range strings.SplitSeq(list, ",") {
			x.maybe(sh, word{part, w.glob, true})
		}
		return
	}
	for _, o := range gluedOptions {
		if value, ok := strings.CutPrefix(w.text, o); ok {
			x.maybe(sh, word{value, w.glob, true})
			return
		}
	}
	if len(w.text) > 2 && w.text[1] != '-' {
		x.maybe(sh, word{w.text[2:], w.glob, true})
	}
}

func isOption(w word) bool { return len(w.text) > 1 && w.text[0] == '-' }

// letter is the last letter of a cluster of short options, as n of -rn.
func letter(w word) byte {
	s := w.plain()
	if len(s) < 2 || s[1] == '-' {
		return 0
	}
	return s[len(s)-1]
}

func (x *extractor) cd(sh *shell, args []word) {
	for _, w := range args {
		if isOption(w) {
			continue
		}
		x.add(sh, w)
		if !w.glob {
			sh.cwd = path.Clean(filerules.Absolute(sh.home, sh.cwd, w.name()))
		}
		return
	}
	sh.cwd = sh.home
}

// find takes the directories, and goes through the commands of -exec. A name that is looked for is
// a path only where something is done with what is found.
func (x *extractor) find(sh *shell, args []word) {
	expression, acts := false, slices.ContainsFunc(args, func(w word) bool { return findActs[w.plain()] })
	var from []word
	for i := 0; i < len(args); i++ {
		w := args[i]
		s := w.plain()
		switch {
		case s == "-exec" || s == "-execdir" || s == "-ok" || s == "-okdir":
			end := i + 1
			for end < len(args) && args[end].plain() != ";" && args[end].plain() != "+" {
				end++
			}
			x.run(sh, x.inFound(args[i+1:end], from))
			i = end
		case findPatterns[s], findNames[s] && !acts:
			expression = true
			i++
		case isOption(w) || s == "(" || s == "!":
			expression = true
		case s == "{}": // what was found
		case !expression:
			from = append(from, w)
			x.add(sh, w)
		default:
			x.maybe(sh, w)
		}
	}
}

// inFound puts what is below the directories that are searched in the place of {}.
// Which paths that are is not known, so for the file rules {} is none.
func (x *extractor) inFound(args, from []word) []word {
	var all []word
	for _, w := range args {
		if w.plain() != "{}" {
			all = append(all, w)
			continue
		}
		for _, f := range from {
			if x.gather && len(all) < maxWords {
				all = append(all, f.join(word{"/**", true, true}))
			}
		}
	}
	return all
}

func (x *extractor) testArgs(sh *shell, args []word) {
	for i := 0; i < len(args); i++ {
		if s := args[i].plain(); len(s) == 2 && s[0] == '-' && strings.IndexByte(fileTests, s[1]) >= 0 &&
			i+1 < len(args) {
			i++
			x.add(sh, args[i])
			continue
		}
		x.maybe(sh, args[i])
	}
}
