package guard

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/shell"
)

// The messages of PicoClaw's exec tool, which agents know.
const (
	MessagePattern = "Command blocked by safety guard (dangerous pattern detected)"
	MessagePath    = "Command blocked by safety guard (path outside working dir)"
)

// RuleWorkspace is the name of the rule that keeps paths inside the workspace.
const RuleWorkspace = "restrict_to_workspace"

// Guard is the rules of one profile, compiled. It is safe for concurrent use.
type Guard struct {
	allow, deny []pattern
	rules       []*rule
	programs    int // bytes of the programs that rules are about
	restrict    bool
}

type pattern struct {
	chat.Pattern
	re *regexp.Regexp
}

// Verdict is a guard's decision on a command. The zero value allows it.
type Verdict struct {
	Denied bool
	// RunDenial says why; its Message is [MessagePattern] or [MessagePath].
	chat.RunDenial
}

// Explained is the verdict as an answer has it.
func (v Verdict) Explained() *chat.Guarded {
	g := &chat.Guarded{Verdict: "allow", Rule: v.Rule, Place: v.Place, Message: v.Message, Command: v.Command,
		Reason: v.Reason, Instead: v.Instead}
	if v.Denied {
		g.Verdict = "deny"
	}
	return g
}

// Err is nil for a command that may run, else a [*chat.RunDenial].
func (v Verdict) Err() error {
	if !v.Denied {
		return nil
	}
	return &v.RunDenial
}

// New compiles the keys of a profile.
func New(cfg chat.Guard) (g *Guard, err error) {
	g = &Guard{restrict: cfg.RestrictToWorkspace}
	if !cfg.EnableDenyPatterns {
		return g, nil
	}
	if g.allow, err = compile("custom_allow_patterns", cfg.CustomAllowPatterns, true); err != nil {
		return nil, err
	}
	if g.deny, err = compile("custom_deny_patterns", cfg.CustomDenyPatterns, false); err != nil {
		return nil, err
	}
	for i := range rules {
		if slices.Contains(rules[i].presets, cfg.Preset) {
			g.rules = append(g.rules, &rules[i])
			for p := range rules[i].programs {
				g.programs += len(p)
			}
		}
	}
	return g, nil
}

// compile reads the patterns of a key; anchored ones must match from end to end.
func compile(key string, list []chat.Pattern, anchored bool) (all []pattern, err error) {
	for i, p := range list {
		re, err := p.Compile()
		if err == nil && anchored {
			re, err = regexp.Compile(`\A(?:` + p.Text + `)\z`)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot use %s[%d]: %w", key, i, err)
		}
		all = append(all, pattern{p, re})
	}
	return all, nil
}

// Place is the home and the working directory of a command; both are absolute.
type Place struct {
	// Home is the workspace, and the value of ~.
	Home string
	// Cwd is where the command starts.
	Cwd string
}

// Command checks a shell command. One that cannot be read is a [chat.ErrInvalid].
func (g *Guard) Command(command string, at Place) (Verdict, error) {
	if g.idle() {
		return Verdict{}, nil
	}
	w, err := shell.Calls(command, at.Home, at.Cwd)
	return g.walk(w, at, err)
}

// Argv checks a program with its arguments, and what it starts in its turn.
func (g *Guard) Argv(argv []string, at Place) (Verdict, error) {
	if g.idle() {
		return Verdict{}, nil
	}
	w, err := shell.CallsOf(argv, at.Home, at.Cwd)
	return g.walk(w, at, err)
}

func (g *Guard) idle() bool { return len(g.deny)+len(g.rules) == 0 && !g.restrict }

// maxLooks bounds what is looked at in one command, in bytes times patterns. xargs xargs … is a
// command for each of its words, each with all the words behind it.
const maxLooks = 1 << 26

// looks is what the custom patterns look at in a simple command, and what a program's name
// with wildcards is to those that rules are about.
func (g *Guard) looks(c *shell.Call) (n int) {
	for _, a := range c.Args {
		n += len(a.Text) + 1
	}
	n *= len(g.allow) + len(g.deny)
	if len(c.Args) > 0 {
		n += len(c.Args[0].Pattern) * g.programs
	}
	return n
}

// walk checks what was found before an error too.
func (g *Guard) walk(w shell.Walk, at Place, err error) (Verdict, error) {
	looks := 0
	for i := range w.Calls {
		if looks += g.looks(&w.Calls[i]); looks > maxLooks {
			return Verdict{}, chat.Invalid("cannot check the command: want at most %d bytes, times patterns and programs, in its commands", maxLooks)
		}
		if v := g.Call(&w.Calls[i]); v.Denied {
			return v, nil
		}
	}
	if g.restrict {
		for _, p := range append([]string{path.Clean(cmp.Or(at.Cwd, at.Home))}, w.Paths...) {
			if !inside(p, at.Home) && !safePaths[p] {
				return Verdict{true,
					chat.RunDenial{Rule: RuleWorkspace, Place: "built in", Message: MessagePath, Command: p,
						Reason: "the path is outside the workspace", Instead: "work below your home"}}, nil
			}
		}
	}
	return Verdict{}, err
}

// Allows reports a custom allow pattern for a command line.
func (g *Guard) Allows(argv []string) bool {
	args := make([]shell.Arg, len(argv))
	for i, a := range argv {
		args[i].Text = a
	}
	return matches(g.allow, Line(args)) != nil
}

// Call checks one simple command.
func (g *Guard) Call(c *shell.Call) Verdict {
	line := Line(c.Args)
	if matches(g.allow, line) != nil {
		return Verdict{}
	}
	v := Verdict{true, chat.RunDenial{Message: MessagePattern, Command: line}}
	if p := matches(g.deny, line); p != nil {
		v.Rule, v.Place = p.Text, p.Place
		v.Reason, v.Instead = "the profile denies commands of this form", "ask an operator"
		return v
	}
	k := newCommand(c)
	for _, r := range g.rules {
		if r.about(k) && (r.match == nil || r.match(k)) {
			v.Rule, v.Place, v.Reason, v.Instead = r.name, "built in", r.reason, r.instead
			if line == "" {
				v.Command = k.elsewhere()
			}
			return v
		}
	}
	return Verdict{}
}

func matches(list []pattern, line string) *pattern {
	i := slices.IndexFunc(list, func(p pattern) bool { return line != "" && p.re.MatchString(line) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// Line is a simple command in one line, as patterns see it.
func Line(args []shell.Arg) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a.Text
		if a.Text == "" || strings.ContainsAny(a.Text, " \t\n\r'\"") {
			words[i] = "'" + strings.ReplaceAll(a.Text, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// safePaths are the devices that every program may use.
var safePaths = set(`/dev/null /dev/zero /dev/random /dev/urandom /dev/stdin /dev/stdout /dev/stderr`)

// inside reports whether p is dir or below it.
func inside(p, dir string) bool { return chat.Within(p, path.Clean(dir)) }
