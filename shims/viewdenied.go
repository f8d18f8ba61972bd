package shims

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/landlock"
)

// maxBeside bounds how many paths stand for one directory that is granted but for what is
// denied in it. Beyond that Landlock grants it whole, and the other wall of file rules is alone.
const maxBeside = 4000

// leaveOut is r without what file rules close: what lies in a granted directory is granted
// name by name then, but for the way to what is denied. Landlock cannot take away below what
// it allows. It also says which of the denied it leaves out.
func (v View) leaveOut(r landlock.Rules) (_ landlock.Rules, out []string) {
	if len(v.Denied) == 0 {
		return r, nil
	}
	b := beside{denied: v.Denied, source: v.HostPath}
	r.Read, r.ReadFiles = b.split(r.Read, r.ReadFiles)
	r.Exec, r.ExecFiles = b.split(r.Exec, r.ExecFiles)
	for _, list := range []*[]string{&r.Write, &r.WriteFiles} {
		*list = slices.DeleteFunc(slices.Clone(*list), b.isDenied)
	}
	r.List = b.list
	for _, d := range v.Denied {
		granted := func(g string) bool { return chat.Within(d, realPath(g)) }
		if !slices.ContainsFunc(slices.Concat(r.Read, r.Exec, r.Write, r.ReadFiles, r.ExecFiles, r.WriteFiles), granted) {
			out = append(out, d)
		}
	}
	return r, out
}

// LeftOut are those of Denied to which Landlock grants nothing.
func (v View) LeftOut() []string {
	_, out := v.leaveOut(v.exposedRules(v.baseRules()))
	return out
}

// HostPath is where a path of the session that it cannot change is on the host; empty for
// one that it can, and for what lies elsewhere than in /usr and what is exposed.
func (v View) HostPath(p string) string {
	for _, e := range slices.Backward(v.Exposed) { // what lies in others comes later
		if chat.Within(p, e.Target) {
			if e.Mode != chat.ReadOnly {
				return ""
			}
			return path.Join(e.Source, strings.TrimPrefix(p, e.Target))
		}
	}
	if chat.Within(p, "/usr") {
		return p
	}
	return ""
}

// realPath is where a directory of the system leads: on a merged /usr /bin is a link.
func realPath(p string) string {
	if slices.Contains([]string{"/bin", "/sbin", "/lib", "/lib64"}, p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return real
		}
	}
	return p
}

// beside grants what lies beside denied paths.
type beside struct {
	denied []string
	source func(p string) string
	list   []string // directories that may be listed, and no more
}

// isDenied reports whether a path is denied as a whole.
func (b *beside) isDenied(p string) bool {
	return slices.ContainsFunc(b.denied, func(d string) bool { return chat.Within(p, d) })
}

// around reports whether something denied lies in p.
func (b *beside) around(p string) bool {
	return slices.ContainsFunc(b.denied, func(d string) bool { return p != d && chat.Within(d, p) })
}

// split is dirs and files without what is denied.
func (b *beside) split(dirs, files []string) (keptDirs, keptFiles []string) {
	for _, g := range files {
		if !b.isDenied(g) {
			keptFiles = append(keptFiles, g)
		}
	}
	for _, g := range dirs {
		real := realPath(g)
		if b.isDenied(real) {
			continue
		}
		var d, f, l []string
		if b.around(real) && b.source(real) != "" && b.open(real, &d, &f, &l) {
			keptDirs, keptFiles, b.list = append(keptDirs, d...), append(keptFiles, f...), append(b.list, l...)
			continue
		}
		keptDirs = append(keptDirs, g)
	}
	return keptDirs, keptFiles
}

// open grants what lies in dir one by one, and says whether it could. A link needs no grant.
func (b *beside) open(dir string, dirs, files, lists *[]string) bool {
	entries, err := os.ReadDir(b.source(dir))
	if err != nil {
		return false // only its whole is known
	}
	*lists = append(*lists, dir)
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		switch {
		case b.isDenied(p) || e.Type()&os.ModeSymlink != 0:
		case !e.IsDir():
			*files = append(*files, p)
		case b.around(p) && b.source(p) != "":
			if !b.open(p, dirs, files, lists) {
				return false
			}
		default:
			*dirs = append(*dirs, p)
		}
		if len(*dirs)+len(*files) > maxBeside {
			return false
		}
	}
	return true
}
