package access

import (
	"path"
	"slices"
	"strings"
)

// words of s as a set.
func set(s string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(s) {
		m[name] = true
	}
	return m
}

// filePrograms take files as their operands, also without a slash in them.
var filePrograms = set(`cat tac nl less more most head tail wc sort uniq cut paste join comm split csplit tee tr
	cp mv rm ln link unlink mkdir rmdir touch chmod chown chgrp chattr stat file du df ls dir vdir tree install truncate shred
	dd readlink realpath namei diff diff3 sdiff cmp patch od xxd hexdump hd strings base64 base32 basenc iconv column fold fmt
	md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat
	zstd unzstd zstdcat zip unzip tar cpio ar rsync scp vi vim nvim view nano ed emacs bat sed awk gawk mawk nawk grep egrep
	fgrep zgrep rg ag jq yq perl python python2 python3 ruby node php lua source . mkfifo mknod setfacl getfacl setfattr
	getfattr mapfile expand unexpand rev shuf tsort pr look xmllint sqlite3 cd pushd chdir mktemp rename gpg age openssl`)

// firstIsText are programs whose first operand is an expression or a mode and no
// file, unless an option gave it.
var firstIsText = set(`sed awk gawk mawk nawk grep egrep fgrep zgrep rg ag jq yq chmod chown chgrp tr chattr look rename setfacl`)

// scriptOptions are the programs of firstIsText and interpreters whose options have
// a script: letter by letter. What follows such an option is no file.
var scriptOptions = map[string]string{
	"sed": "e", "grep": "e", "egrep": "e", "fgrep": "e", "zgrep": "e", "rg": "e", "perl": "eEnIM", "python": "cm",
	"python2": "cm", "python3": "cm", "ruby": "e", "node": "ep", "php": "r", "lua": "e",
}

// valueOptions are options that are followed by something that is no file.
var valueOptions = map[string]string{
	"head": "nc", "tail": "nc", "grep": "ABCm", "egrep": "ABCm", "fgrep": "ABCm", "rg": "ABCmgt", "cut": "dfbc", "sort": "kt",
	"split": "bln", "uniq": "fsw", "paste": "d", "join": "t12j", "fold": "w", "fmt": "w", "awk": "Fv", "gawk": "Fv", "mawk": "Fv",
	"od": "AtNjw", "xxd": "lsc", "hexdump": "ens", "strings": "n", "install": "mog", "mkdir": "m", "truncate": "s", "du": "d",
	"tree": "LIP", "column": "st", "base64": "w", "less": "x", "nl": "bnw", "iconv": "ft", "mknod": "m", "touch": "dt", "stat": "c",
	"sudo": "ughpCDRT", "env": "uS", "nice": "n", "timeout": "sk", "xargs": "nIPdLsE", "ionice": "cnp", "stdbuf": "ioe",
	"exec": "a", "watch": "n", "doas": "uC", "setpriv": "", "strace": "eosp", "chroot": "", "time": "fo", "tr": "", "jq": "",
}

// wrappers run the command that is in their operands, after so many others.
var wrappers = map[string]int{
	"sudo": 0, "doas": 0, "env": 0, "nice": 0, "nohup": 0, "time": 0, "timeout": 1, "command": 0, "builtin": 0, "exec": 0, "setsid": 0,
	"stdbuf": 0, "ionice": 0, "xargs": 0, "busybox": 0, "toybox": 0, "watch": 0, "strace": 0, "ltrace": 0, "unshare": 0, "chroot": 1,
	"parallel": 0, "unbuffer": 0, "script": 0, "catchsegv": 0, "setpriv": 0,
}

var shells = set("sh bash dash ash zsh ksh rbash mksh")

// fileTests are the operators of test that are followed by a file.
const fileTests = "abcdefghkprstuwxGLNOS"

// run goes through one simple command.
func (x *extractor) run(sh *shell, args []word) {
	if len(args) == 0 {
		return
	}
	if args[0].plain() != "." {
		x.maybe(sh, args[0])
	}
	name, rest := path.Base(args[0].plain()), args[1:]
	skip, wrapper := wrappers[name]
	switch {
	case wrapper:
		x.wrapped(sh, name, rest, skip)
	case shells[name]:
		x.shellArgs(sh, rest)
	case name == "eval":
		x.eval(sh, rest)
	case name == "cd" || name == "pushd" || name == "chdir":
		x.cd(sh, rest)
	case name == "find":
		x.find(sh, rest)
	case name == "test" || name == "[":
		x.testArgs(sh, rest)
	default:
		x.operands(sh, name, rest)
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
		w, s = value, value.text
	}
	if looksLikePath(s) {
		x.add(sh, w)
	}
}

func looksLikePath(s string) bool {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") {
		return true
	}
	if strings.ContainsAny(s, " \t\n") {
		return false // a text with a path in it
	}
	return s == "." || s == ".." || s == "~" || strings.Contains(s, "/") && !strings.Contains(s, "://")
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

// operands goes through the arguments of a program.
func (x *extractor) operands(sh *shell, name string, args []word) {
	isFile, text := filePrograms[name], firstIsText[name]
	for i := 0; i < len(args); i++ {
		w := args[i]
		switch l := letter(w); {
		case w.plain() == "--":
			for _, w := range args[i+1:] {
				if !text {
					x.operand(sh, w, isFile)
				}
				text = false
			}
			return
		case !isOption(w):
			if text || name == "tar" && i == 0 && !strings.Contains(w.text, "/") {
				text = false
				continue
			}
			x.operand(sh, w, isFile)
		case l != 0 && strings.IndexByte(scriptOptions[name], l) >= 0:
			text = false
			i++
		case l != 0 && strings.IndexByte(valueOptions[name], l) >= 0:
			i++
		case l == 'f' && firstIsText[name]:
			text = false
		default:
			x.option(sh, w)
		}
	}
}

func (x *extractor) operand(sh *shell, w word, isFile bool) {
	if value, ok := assigned(w); ok && isFile {
		x.add(sh, value)
		return
	}
	if isFile && !strings.Contains(w.text, "://") && !strings.HasPrefix(w.text, "@") {
		x.add(sh, w)
		return
	}
	x.maybe(sh, w)
}

// wrapped runs what stands behind the wrapper's own options and operands.
func (x *extractor) wrapped(sh *shell, name string, args []word, skip int) {
	for i := 0; i < len(args); i++ {
		w := args[i]
		_, isAssigned := assigned(w)
		switch l := letter(w); {
		case w.plain() == "--":
		case isOption(w):
			x.option(sh, w)
			if l != 0 && strings.IndexByte(valueOptions[name], l) >= 0 && i+1 < len(args) {
				i++
				x.maybe(sh, args[i])
			}
		case isAssigned:
			x.maybe(sh, w)
		case skip > 0:
			skip--
			x.maybe(sh, w)
		default:
			x.run(sh, args[i:])
			return
		}
	}
}

// shellArgs goes through the script of -c, or takes the script's file.
func (x *extractor) shellArgs(sh *shell, args []word) {
	script := false
	for i, w := range args {
		switch {
		case isOption(w):
			script = script || letter(w) != 0 && strings.Contains(w.plain(), "c")
			x.option(sh, w)
		case script:
			x.nested(sh.sub(), w.plain())
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

func (x *extractor) cd(sh *shell, args []word) {
	for _, w := range args {
		if isOption(w) {
			continue
		}
		x.add(sh, w)
		if !w.glob {
			sh.cwd = path.Clean(absolute(sh.home, sh.cwd, w.plain()))
		}
		return
	}
	sh.cwd = sh.home
}

// find takes the directories, and goes through the commands of -exec.
func (x *extractor) find(sh *shell, args []word) {
	expression := false
	for i := 0; i < len(args); i++ {
		w := args[i]
		s := w.plain()
		switch {
		case s == "-exec" || s == "-execdir" || s == "-ok" || s == "-okdir":
			end := i + 1
			for end < len(args) && args[end].plain() != ";" && args[end].plain() != "+" {
				end++
			}
			x.run(sh, slices.DeleteFunc(args[i+1:end], func(w word) bool { return w.plain() == "{}" }))
			i = end
		case isOption(w) || s == "(" || s == "!":
			expression = true
		case s == "{}": // what was found
		case !expression:
			x.add(sh, w)
		default:
			x.maybe(sh, w)
		}
	}
}

func (x *extractor) testArgs(sh *shell, args []word) {
	for i := 0; i < len(args); i++ {
		if s := args[i].plain(); len(s) == 2 && s[0] == '-' && strings.IndexByte(fileTests, s[1]) >= 0 && i+1 < len(args) {
			i++
			x.add(sh, args[i])
			continue
		}
		x.maybe(sh, args[i])
	}
}
