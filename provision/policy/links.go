package policy

import (
	"path"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
)

// nameList collects the names whose links the rules need.
type nameList struct {
	all  []string
	seen map[string]bool
}

// add records a name and follows no link: it is the Resolve of a filerules.Scope.
func (l *nameList) add(p string) string {
	clean := path.Clean(p)
	if l.seen == nil {
		l.seen = map[string]bool{"/": true}
	}
	if !l.seen[p] && clean != "/" {
		l.seen[p] = true
		l.all = append(l.all, p)
	}
	return clean
}

// linkTargets are the targets of those names that links redirect, as the chat's side reported them:
// root follows none.
type linkTargets map[string]filewire.Link

// resolve returns the target of a name, for a [filerules.Scope].
func (l linkTargets) resolve(name string) string {
	if to := l[name].To; to != "" {
		return to
	}
	return path.Clean(name)
}

// resolver returns the target of a name.
type resolver = func(name string) string

// link compiles the same rules with another Resolve.
func link(rs *filerules.Ruleset, to resolver) (*filerules.Ruleset, error) {
	scope := rs.Scope()
	scope.Resolve = to
	return rs.Policy().For(scope)
}
