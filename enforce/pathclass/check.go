package pathclass

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// essentials are paths of the host that every session needs, beside its home and the paths of the
// kernel and of chatd. libraries are those of bash and tmux.
var (
	essentials = []string{"/usr/bin/bash", "/usr/bin/sh", "/usr/bin/tmux", "/bin", "/lib", "/lib64", "/etc",
		"/tmp", "/var/tmp"}
	libraries = regexp.MustCompile(`/(ld-linux.*\.so.*|libc\.so\.6|libm\.so\.6|libresolv\.so\.2|(libtinfo|libevent_core-.*|libutempter)\.so\..*)$`)
)

// Unenforceable are the rules of a policy with which no session could start. Each fault has the
// rule's place, the rule as its key, and the reason. It is a [chat.ErrUnsupported].
type Unenforceable []filerules.Fault

// Error has one line for each rule.
func (u Unenforceable) Error() string {
	lines := make([]string, len(u))
	for i, f := range u {
		lines[i] = fmt.Sprintf("cannot keep rule %s (%s): %s", chat.Quote(f.Key), f.Place, f.Why)
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes the kind of the error "unsupported".
func (u Unenforceable) Unwrap() error { return chat.ErrUnsupported }

// refuseFunc takes a rule and why no session could start with it.
type refuseFunc func(r filerules.Rule, why string)

// refuseRules collects the rules that find refuses, for any agent of a policy or for none, each once.
func refuseRules(p *filerules.Policy, home string, find func(*filerules.Ruleset, refuseFunc) error) error {
	var bad Unenforceable
	refuse := func(r filerules.Rule, why string) {
		f := filerules.Fault{Place: r.Place, Key: r.String(), Why: why}
		if !slices.ContainsFunc(bad, func(o filerules.Fault) bool {
			return o.Place == f.Place && o.Key == f.Key
		}) {
			bad = append(bad, f)
		}
	}
	for _, agent := range append(p.Agents(), "*") {
		rs, err := p.For(filerules.Scope{Agent: agent, Home: home})
		if err == nil {
			err = find(rs, refuse)
		}
		if err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		return bad
	}
	return nil
}

// Check refuses a policy with a rule that would keep every session from starting, for any of its
// agents or for none, and names the rule. home stands for the homes of the chats.
func Check(p *filerules.Policy, home string) error {
	needed := neededPaths(home)
	return refuseRules(p, home, func(rs *filerules.Ruleset, refuse refuseFunc) error {
		for _, c := range rs.Rules() {
			if place := kernelPathOf(c); place != "" {
				refuse(c.Rule, "a session does not start without "+place)
			}
		}
		checkKernelPaths(rs, refuse)
		for _, p := range needed {
			if h := rs.ClassOf(p); h.Class == filerules.Closed {
				refuse(*h.Why.Rule, "a session does not start without "+p)
			}
		}
		return nil
	})
}

// neededPaths are the essentials as this host has them. It lists each directory of libraries
// once: there are dozens, with thousands of names.
func neededPaths(home string) []string {
	there := slices.DeleteFunc(slices.Clone(essentials), func(p string) bool {
		_, err := os.Lstat(p)
		return err != nil
	})
	libs, _ := filepath.Glob("/usr/lib/*/l*.so*") // it fails for a bad pattern alone
	older, _ := filepath.Glob("/usr/lib64/ld-linux*.so*")
	libs = slices.DeleteFunc(append(libs, older...), func(p string) bool { return !libraries.MatchString(p) })
	return slices.Concat([]string{home}, there, libs)
}

// kernelPathOf is the place of the kernel's, or of chatd's, that all a deny is about lies in.
func kernelPathOf(c filerules.CompiledRule) string {
	if c.Effect != filerules.Deny || c.Ops&filerules.Kernel == 0 {
		return ""
	}
	for _, m := range c.Matchers {
		if filerules.Enforced(m.Prefix) {
			continue
		}
		for _, place := range filerules.KernelPlaces() {
			if chat.Within(m.Prefix, place) {
				return place
			}
		}
	}
	return ""
}

// checkKernelPaths refuses what denies anything of a place of the kernel's or chatd's own,
// or of a directory around it, whatever an exception allows inside.
func checkKernelPaths(rs *filerules.Ruleset, refuse refuseFunc) {
	for _, place := range filerules.KernelPlaces() {
		for at := place; ; at = path.Dir(at) {
			for _, op := range []filerules.Op{filerules.Bash, filerules.Write, filerules.Edit} {
				if v := rs.CheckName(at, op); v.Denied() {
					refuse(*v.Rule, "a session does not start without "+place)
				}
			}
			if at == "/" {
				break
			}
		}
	}
}

// inKernelPath reports whether a path is one of those places, or in it or around it.
func inKernelPath(p string) bool {
	return slices.ContainsFunc(filerules.KernelPlaces(), func(place string) bool {
		return chat.Within(p, place) || chat.Within(place, p)
	})
}
