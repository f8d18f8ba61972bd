package pathclass

import (
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// Source is a chat's rules, compiled, and the scope that they have.
type Source struct {
	Rules       []byte
	Agent, Home string
}

// Compile compiles the rules of a chat, with the present and the earlier targets of links. It
// runs in the session's mount namespace, because links resolve as the session sees them. It reads
// links by name and opens nothing through them.
func Compile(src Source, l *Links) (*Wall, error) {
	policy, err := filerules.ReadCompiled(src.Rules)
	if err != nil {
		return nil, err
	}
	// Check reads directories of the host. In the session each open waits for an answer, and while
	// a worker resumes the session nothing answers.
	if err := sys.InOwnNamespace(func() error { return Check(policy, src.Home) }); err != nil {
		return nil, err
	}
	return compileLinks(policy, src, l)
}

// Relink is [Compile] for rules that are already in force.
func (w *Wall) Relink(src Source, l *Links) (*Wall, error) {
	return compileLinks(w.rules.Policy(), src, l)
}

func compileLinks(policy *filerules.Policy, src Source, l *Links) (*Wall, error) {
	f := newFollower(l, src.Home)
	rs, err := policy.For(filerules.Scope{
		Agent: src.Agent, Home: src.Home, Resolve: f.resolve, Before: f.before,
	})
	if err != nil {
		return nil, err
	}
	w := New(rs)
	w.denyDirs = f.denyDirs
	for link := range f.links {
		w.addLinkPath(link)
	}
	return w, nil
}
