package filewire

import (
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Options limit what the tools may reach. The zero value of each is the strictest.
type Options struct {
	// Workspace is the home: the base of relative paths.
	Workspace string
	// Roots are further directories that belong to the chat, as /tmp.
	Roots []string
	// Unrestricted is restrict_to_workspace: false. Only the caller's check, the kernel and the
	// confinement then restrict the tools.
	Unrestricted bool
	// ReadOutside is allow_read_outside_workspace.
	ReadOutside bool
	// AllowRead and AllowWrite are allow_read_paths and allow_write_paths: regular
	// expressions for physical names outside the roots. A match must end where a
	// name ends: ^/x/allow is /x/allow and what is below it, not /x/allowed-not. A
	// grant to read grants no write, and the reverse.
	AllowRead, AllowWrite []string
	// Check holds the file rules; nil forbids nothing.
	Check Check
	// Rules, if they are set, are compiled into Check by Open, in the view of the caller.
	Rules *Rules
	// MaxBytes bounds a file that is written, and what one stream reads; 0 is [DefaultMaxBytes].
	MaxBytes int64
	// LockWait is how long append_file and edit_file wait for a lock; 0 means [DefaultLockWait].
	LockWait time.Duration
}

// Defaults for zero fields of [Options].
const (
	DefaultMaxBytes = 4 << 30
	DefaultLockWait = 10 * time.Second
)

// Grants are the paths that the tools may use by their options.
type Grants struct {
	opt         Options
	Roots       []string
	read, write []*regexp.Regexp
}

// Grants compiles the options. Names of the roots are compared as they are.
func (o Options) Grants() (g Grants, err error) {
	g = Grants{opt: o, Roots: append([]string{o.Workspace}, o.Roots...)}
	if g.read, err = compile("allow_read_paths", o.AllowRead); err == nil {
		g.write, err = compile("allow_write_paths", o.AllowWrite)
	}
	return g, err
}

// Reaches reports whether name is in a root, or op may leave the roots for name.
func (g Grants) Reaches(op Op, name string) bool {
	inRoot := func(r string) bool { return chat.Within(name, r) }
	if g.opt.Unrestricted || slices.ContainsFunc(g.Roots, inRoot) {
		return true
	}
	granted := func(all []*regexp.Regexp) bool {
		return slices.ContainsFunc(all, func(re *regexp.Regexp) bool { return re.MatchString(name) })
	}
	canRead := g.opt.ReadOutside || granted(g.read)
	switch op {
	case Read:
		return canRead
	case Edit:
		return canRead && granted(g.write)
	}
	return granted(g.write)
}

// compile binds each pattern to the end of a name, or of a directory's name.
func compile(key string, patterns []string) ([]*regexp.Regexp, error) {
	var out []*regexp.Regexp
	for _, p := range patterns {
		re, err := chat.BoundPattern(p)
		if err != nil {
			return nil, Invalid("cannot use %s %s: %w", key, chat.Quote(p), err)
		}
		out = append(out, re)
	}
	return out, nil
}

// Rules are the file rules of a chat, compiled.
type Rules struct {
	Compiled json.RawMessage `json:"compiled"`
	Agent    string          `json:"agent,omitempty"`
}

// Check compiles the rules for a home. Links of the directories that they name are followed here,
// as the caller.
func (r *Rules) Check(home string) (Check, error) {
	p, err := filerules.ReadCompiled(r.Compiled)
	if err != nil {
		return nil, err
	}
	rs, err := p.For(filerules.Scope{Agent: r.Agent, Home: home, Resolve: filerules.Physical})
	if err != nil {
		return nil, err
	}
	return CheckBy(rs), nil
}

// CheckBy returns the check by compiled rules, for the operation alone: the language has the last
// word. What the rules cannot answer is denied.
func CheckBy(rules *filerules.Ruleset) Check {
	return func(op Op, name string) *Denial {
		d := &Denial{Op: op, Path: name, Rule: "cannot be checked"}
		asked, err := filerules.ParseOp(string(op))
		var v filerules.Verdict
		if err == nil {
			v, err = rules.Check(name, asked)
		}
		if err != nil {
			d.Message = err.Error()
			return d
		}
		if !v.Denied() {
			return nil
		}
		d.Rule, d.Place, d.Layer = v.Rule.String(), v.Rule.Place, string(v.Layer)
		d.Message = rules.Message(*v.Rule, name)
		return d
	}
}
