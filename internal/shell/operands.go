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
	if wrappers[name] || strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld.so") {
		x.wrapped(sh, name, rest)
		return
	}
	if shells[name] {
		x.shellArgs(sh, rest)
		return
	}
	switch name {
	case "eval":
		x.eval(sh, rest)
	case "alias":
		x.alias(sh, rest)
	case "trap":
		x.trap(sh, rest)
	case "cd", "pushd", "chdir":
		x.cd(sh, rest)
	case "find":
		x.find(sh, rest)
	case "test", "[":
		x.testArgs(sh, rest)
	case "echo", "printf":
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
	w.text = strings.TrimPrefix(strings.TrimPrefix(w.text, "file://"), "@")
	if value, ok := assigned(w); ok {
		w = value
		w.text = strings.TrimPrefix(w.text, "@") // curl -F name=@file
	}
	if looksLikePath(w.text) {
		x.add(sh, w)
	}
}

func looksLikePath(s string) bool {
	if explicit(s) {
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
	value := ""
	if len(w.text) > 2 && w.text[1] != '-' {
		value = w.text[2:]
	}
	for _, o := range gluedOptions {
		if long, ok := strings.CutPrefix(w.text, o); ok {
			value = long
		}
	}
	x.maybe(sh, word{value, w.glob, true})
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
	isFile := false
	for _, w := range args {
		if isFile {
			x.add(sh, w)
		} else {
			x.maybe(sh, w)
		}
		s := w.plain()
		isFile = !isFile && len(s) == 2 && s[0] == '-' && strings.IndexByte(fileTests, s[1]) >= 0
	}
}
