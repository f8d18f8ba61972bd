package guard

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/shell"
)

// command is a simple command as the rules look at it.
type command struct {
	*shell.Call
	// name is the program without its directory; pattern is set when it has wildcards.
	name, pattern string
	// args are the words behind the program.
	args []shell.Arg
	// short are the letters of its short options, long its long options without a value.
	short string
	long  []string
	// operands are the words that are no options.
	operands []shell.Arg
}

func newCommand(c *shell.Call) *command {
	k := &command{Call: c}
	if len(c.Args) == 0 {
		return k
	}
	k.name, k.args = path.Base(c.Args[0].Text), c.Args[1:]
	if strings.HasPrefix(k.name, "mkfs.") {
		k.name = "mkfs"
	}
	if p := path.Base(c.Args[0].Pattern); c.Args[0].Pattern != "" && strings.Trim(p, "*?") != "" {
		k.pattern = p
	}
	var short strings.Builder
	defer func() { k.short = short.String() }()
	for i, a := range k.args {
		s := a.Text
		switch {
		case s == "--":
			k.operands = append(k.operands, k.args[i+1:]...)
			return k
		case len(s) > 2 && s[:2] == "--":
			name, _, _ := strings.Cut(s[2:], "=")
			k.long = append(k.long, name)
		case k.signals() && signalOption.MatchString(s): // no letter of it is an option
		case len(s) > 1 && s[0] == '-':
			short.WriteString(s[1:])
		default:
			k.operands = append(k.operands, a)
		}
	}
	return k
}

// is reports whether the program is one of a set.
func (k *command) is(programs map[string]bool) bool {
	if programs[k.name] {
		return true
	}
	if k.pattern != "" {
		for p := range programs {
			if ok, err := path.Match(k.pattern, p); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// has reports one of some short options, or a long one.
func (k *command) has(letters string, long ...string) bool {
	return strings.ContainsAny(k.short, letters) || slices.ContainsFunc(long, func(l string) bool {
		return slices.Contains(k.long, l)
	})
}

// asksHelp reports that k prints its help or version and does nothing else, as programs of GNU do.
func (k *command) asksHelp() bool {
	return len(k.args) == 1 && (k.args[0].Text == "--help" || k.args[0].Text == "--version")
}

// signals reports a program that takes a signal for an option.
func (k *command) signals() bool { return k.name == "pkill" || k.name == "killall" }

// verb reports one of some words among the operands.
func (k *command) verb(words ...string) bool {
	return anyText(k.operands, func(s string) bool { return slices.Contains(words, s) })
}

// first is the first operand that a program with verbs has, as install of apt -y install.
func (k *command) first(words ...string) bool {
	return len(k.operands) > 0 && slices.Contains(words, k.operands[0].Text)
}

// docker reports docker VERB, or docker container VERB and its like.
func (k *command) docker(verb string) bool {
	return k.first(verb) || len(k.operands) > 1 && k.first("container", "compose") &&
		k.operands[1].Text == verb
}

// git is the verb behind git's own options (git(1)).
func (k *command) git() string {
	for i := 0; i < len(k.args); i++ {
		switch s := k.args[i].Text; {
		case s == "-C" || s == "-c" || s == "--git-dir" || s == "--work-tree" || s == "--namespace":
			i++
		case !strings.HasPrefix(s, "-"):
			return s
		}
	}
	return ""
}

// anyText reports an argument whose text is of a kind.
func anyText(args []shell.Arg, is func(string) bool) bool {
	return slices.ContainsFunc(args, func(a shell.Arg) bool { return is(a.Text) })
}

func (k *command) uses(what shell.Use) bool { return k.Uses&what != 0 }

func (k *command) path(s string) string { return filerules.Fold(k.Home, k.Cwd, s) }

// elsewhere describes what a command without a program does.
func (k *command) elsewhere() string {
	if len(k.Writes) > 0 {
		return "> " + k.Writes[0].Text
	}
	return "the command"
}

// own are the places beside the home that belong to the chat alone.
var own = []string{"/tmp", "/var/tmp", "/dev/shm", "/run/chat"}

// outside reports a path that is not the chat's own.
func (k *command) outside(p string) bool {
	return !inside(p, k.Home) && !slices.ContainsFunc(own, func(dir string) bool { return inside(p, dir) })
}

func (k *command) namesOutside(a shell.Arg) bool { return !a.Unknown && k.outside(k.path(a.Text)) }

// whole reports an operand that is the home, everything in it, or outside.
func (k *command) whole(a shell.Arg) bool {
	if a.Unknown {
		return false
	}
	p := k.path(a.Text)
	if a.Pattern != "" && (a.Text == "*" || a.Text == ".*" || strings.HasSuffix(a.Text, "/*") ||
		strings.HasSuffix(a.Text, "/.*")) {
		p = path.Dir(p) // all of a directory
	}
	return p == path.Clean(k.Home) || k.outside(p)
}

// device is a special file that is not for everybody.
func device(p string) bool {
	if !strings.HasPrefix(p, "/dev/") || safePaths[p] {
		return false
	}
	return !slices.ContainsFunc([]string{"/dev/tty", "/dev/pts/", "/dev/ptmx", "/dev/fd/", "/dev/shm/",
		"/dev/full", "/dev/tcp/", "/dev/udp/"}, func(ok string) bool { return strings.HasPrefix(p, ok) })
}

// writesDevice reports a command that writes to a device.
func writesDevice(k *command) bool {
	if slices.ContainsFunc(k.Writes, func(a shell.Arg) bool { return device(a.Text) }) {
		return true
	}
	if k.name == "dd" {
		return anyText(k.operands, func(s string) bool {
			to, ok := strings.CutPrefix(s, "of=")
			return ok && device(k.path(to))
		})
	}
	targets := k.operands
	switch n := len(targets); {
	case n > 0 && k.is(copiers):
		targets = targets[n-1:]
	case !k.is(writers):
		return false
	}
	return slices.ContainsFunc(targets, func(a shell.Arg) bool { return device(k.path(a.Text)) })
}

var set = shell.Set

var (
	shells    = set(shell.Shells)
	copiers   = set("cp mv install ln")
	writers   = set("tee shred truncate wipefs blkdiscard")
	languages = set("python python2 python3 perl ruby node php lua")
	fetchers  = set("curl wget fetch aria2c http https lynx ftp nc ncat netcat socat")
	decoders  = set("base64 base32 basenc xxd uudecode rev tr openssl")
	// signalOption is a signal by name, as -HUP or -SIGUSR1.
	signalOption = regexp.MustCompile(`^-[A-Z][A-Z]+[0-9]*([+-][0-9]+)?$`)
	setModes     = regexp.MustCompile(`^([2-7][0-7]{3}|[0-7][2-7][0-7]{3}|[augo]*[+=][rwxXt]*s[rwxXst]*)$`)
	killSignal   = regexp.MustCompile(`^(-9|-KILL|-SIGKILL|9|KILL|SIGKILL|-s9|-sKILL|-n9)$`)
	octalModes   = regexp.MustCompile(`^[0-7]{3,4}$`)
)

// code reports whether a shell or an interpreter reads its program from a pipe or a substitution
// that a program in from feeds.
func (k *command) code(from map[string]bool) bool {
	isShell, isLanguage := k.is(shells), k.is(languages)
	any := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return from[s] })
	}
	switch {
	case k.name == "eval":
		return any(k.Within) && slices.ContainsFunc(k.args, func(a shell.Arg) bool { return a.Pattern != "" })
	case k.name == "source" || k.name == ".":
		return len(k.args) > 0 &&
			(any(k.Within) && k.args[0].Pattern != "" || any(k.From) && shell.IsStdin(k.args[0].Text))
	case !isShell && !isLanguage:
		return false
	case isShell && strings.Contains(k.short, "s"), len(k.operands) == 0 && k.short == "" ||
		len(k.operands) == 0 && isShell && !strings.Contains(k.short, "c"):
		return any(k.From)
	case len(k.operands) == 0:
		return false
	}
	first := k.operands[0]
	return any(k.From) && shell.IsStdin(first.Text) && !strings.Contains(k.short, "c") || any(k.Within) &&
		first.Pattern != ""
}
