package chat

import (
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// MaxGrantMatches bounds the paths that one allow_read_paths or allow_write_paths expression
// matches.
const MaxGrantMatches = 1000

// Grant is one parsed expression of allow_read_paths or allow_write_paths. A match must end where a
// name ends: ^/x/allow matches /x/allow and everything below, but not /x/allowed-not. Package files
// checks names by the same rule.
type Grant struct {
	Pattern string
	Mode    Mode
	// Dir is the directory that its literal prefix names: no path outside it can match.
	Dir string
	// Path is set if the expression matches exactly one path.
	Path string
	// Own: sessions have a file system of their own there, so nothing is mounted.
	Own bool
}

// ParseGrant parses an expression. It refuses one without a literal prefix, which could match any
// path, and one for paths that no session may see.
func ParseGrant(pattern string, mode Mode) (Grant, error) {
	g := Grant{Pattern: pattern, Mode: mode}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return g, Invalid("%s: %v: want a regular expression", Quote(pattern), err)
	}
	prefix, whole := literalPrefix(tree)
	slash := strings.LastIndexByte(prefix, '/')
	if slash < 0 || prefix[0] != '/' || !whole && slash == 0 {
		return g, Invalid("%s has no literal beginning: want ^/DIRECTORY/ in front, or it could stand for any path",
			Quote(pattern))
	}
	if err := checkAbsolute(prefix); err != nil {
		return g, err
	}
	g.Dir = path.Clean(prefix[:slash+1])
	if whole {
		g.Path = path.Clean(prefix)
		g.Dir = path.Dir(g.Path)
	}
	return g, g.check()
}

// literalPrefix is the prefix of every match; whole reports that it is the whole match.
func literalPrefix(tree *syntax.Regexp) (prefix string, whole bool) {
	parts := []*syntax.Regexp{tree}
	if tree.Op == syntax.OpConcat {
		parts = tree.Sub
	}
	if len(parts) == 0 || parts[0].Op != syntax.OpBeginText {
		return "", false
	}
	for i, p := range parts[1:] {
		switch {
		case p.Op == syntax.OpLiteral && p.Flags&syntax.FoldCase == 0:
			prefix += string(p.Rune)
		case p.Op == syntax.OpEndText && i == len(parts)-2:
			return prefix, true
		default:
			return prefix, false
		}
	}
	return prefix, true
}

// sessionsOwn are the private file systems of every session, of which the first three are writable,
// and the host's programs, which every session sees.
var sessionsOwn = []string{"/tmp", "/var/tmp", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib32",
	"/lib64", "/libx32"}

func (g *Grant) check() error {
	at := g.Dir
	if g.Path != "" {
		at = g.Path
	}
	switch {
	case Within(at, "/proc") && g.Path == "":
		return Invalid("%s: below /proc a grant is one file: want ^/proc/NAME$", Quote(g.Pattern))
	case g.Mode == ReadWrite && (Within(at, "/proc") || Within(at, "/sys")):
		return Invalid("%s: /proc and /sys are for reading: want it in allow_read_paths", Quote(g.Pattern))
	case at == "/proc" || at == "/sys" && g.Path != "":
		return Invalid("%s: below /proc and /sys a grant is one file: want a file", Quote(g.Pattern))
	case Within(at, "/sys"):
		return nil
	}
	g.Own = Within(at, "/proc") || slices.ContainsFunc(sessionsOwn, func(own string) bool {
		return Within(at, own)
	})
	g.Own = g.Own || g.Path != "" && slices.Contains(reservedPaths, g.Path)
	switch {
	case g.Own && g.Mode == ReadWrite && !slices.ContainsFunc(sessionsOwn[:3], func(own string) bool {
		return Within(at, own)
	}):
		return Invalid("%s: what sessions have at %s is not for writing: want it in allow_read_paths",
			Quote(g.Pattern), at)
	case g.Own:
		return nil
	case g.Path != "":
		return CheckSource(g.Path, g.Mode)
	}
	return g.checkDir()
}

// checkDir checks the directory of the matches. It may contain a forbidden tree, because each match
// is checked again, but it may not lie in one.
func (g Grant) checkDir() error {
	for _, n := range neverExposed {
		if Within(g.Dir, n.path) {
			return Invalid("%s may not be granted: %s: %s: want a path apart from it", Quote(g.Pattern),
				n.path, n.why)
		}
	}
	for _, dir := range systemTrees {
		if g.Mode == ReadWrite && Within(g.Dir, dir) {
			return Invalid("%s may not be granted for writing: every user of the host runs or reads what is in %s: want it in allow_read_paths",
				Quote(g.Pattern), dir)
		}
	}
	return nil
}

// Bound is the expression for whole names: it matches the path of a grant itself.
func (g Grant) Bound() (*regexp.Regexp, error) { return BoundPattern(g.Pattern) }

// BoundPattern makes a pattern match only up to the end of a name or of a directory's name.
func BoundPattern(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(pattern) // by itself, or a ")" could close the group around it
	if err != nil || strings.HasSuffix(pattern, "/") {
		return re, err
	}
	return regexp.Compile("(?:" + pattern + `)(?:/|\z)`)
}

// Below matches a directory's name followed by a slash: the grant includes everything below.
func (g Grant) Below() (*regexp.Regexp, error) {
	if strings.HasSuffix(g.Pattern, "/") {
		return regexp.Compile(g.Pattern)
	}
	return regexp.Compile("(?:" + g.Pattern + ")/")
}

// Grants parses both lists of the profile, in order; key names the first invalid expression.
func (p Profile) Grants() (grants []Grant, key string, err error) {
	for _, list := range []struct {
		key      string
		patterns []string
		mode     Mode
	}{{"allow_read_paths", p.AllowReadPaths, ReadOnly}, {"allow_write_paths", p.AllowWritePaths, ReadWrite}} {
		for i, pattern := range list.patterns {
			g, err := ParseGrant(pattern, list.mode)
			if err != nil {
				return nil, fmt.Sprintf("%s[%d]", list.key, i), err
			}
			grants = append(grants, g)
		}
	}
	return grants, "", nil
}

// CheckView reports the first invalid rule of the profile about the host's paths, and its key below
// the profile.
func (p Profile) CheckView() (key string, err error) {
	if key, err := CheckExposePaths(p.ExposePaths); err != nil {
		return key, err
	}
	_, key, err = p.Grants()
	return key, err
}
