package plan

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/landlock"
)

// MaxBeside bounds how many grants replace the one of a directory in which paths are denied.
// Beyond that Landlock grants the directory whole, and only the mounts enforce the file rules.
const MaxBeside = 4000

// leaveOut returns r without the denied paths. It grants the entries of a granted directory one by
// one, except those on the way to a denied path, because Landlock cannot deny a path below one that
// it allows. out are the denied paths that it leaves out.
func (v View) leaveOut(r landlock.Rules) (_ landlock.Rules, out []string) {
	if len(v.Denied) == 0 {
		return r, nil
	}
	b := beside{denied: v.Denied, source: v.HostPath}
	r.Read, r.ReadFiles = b.split(r.Read, r.ReadFiles)
	r.Exec, r.ExecFiles = b.split(r.Exec, r.ExecFiles)
	r.Write, r.WriteFiles = b.without(r.Write), b.without(r.WriteFiles)
	r.List = b.list
	for _, d := range v.Denied {
		granted := func(g string) bool { return chat.Within(d, realPath(g)) }
		if !slices.ContainsFunc(slices.Concat(r.Read, r.Exec, r.Write, r.ReadFiles, r.ExecFiles,
			r.WriteFiles), granted) {
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

// HostPath is the host's path for a path of the session that the session cannot change. It is
// empty for a path that the session can change, and for one outside /usr and the exposed paths.
func (v View) HostPath(p string) string {
	for _, e := range slices.Backward(v.Exposed) { // inner paths come after outer ones
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

// realPath resolves a directory of the system: on a merged /usr, /bin is a link.
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

// without returns the paths that are not denied.
func (b *beside) without(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), b.isDenied)
}

// grants are directories and files that are granted, and directories that may only be listed.
type grants struct{ dirs, files, lists []string }

// split returns dirs and files without the denied paths.
func (b *beside) split(dirs, files []string) (keptDirs, keptFiles []string) {
	keptFiles = b.without(files)
	for _, g := range dirs {
		real := realPath(g)
		if b.isDenied(real) {
			continue
		}
		var in grants
		if !b.around(real) || b.source(real) == "" || !b.open(real, &in) {
			in = grants{dirs: []string{g}}
		}
		keptDirs, keptFiles = append(keptDirs, in.dirs...), append(keptFiles, in.files...)
		b.list = append(b.list, in.lists...)
	}
	return keptDirs, keptFiles
}

// open grants the entries of dir one by one, and reports whether it could. A link needs no grant.
func (b *beside) open(dir string, in *grants) bool {
	entries, err := os.ReadDir(b.source(dir))
	if err != nil {
		return false // only its whole is known
	}
	in.lists = append(in.lists, dir)
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		switch {
		case b.isDenied(p) || e.Type()&os.ModeSymlink != 0:
		case !e.IsDir():
			in.files = append(in.files, p)
		case b.around(p) && b.source(p) != "":
			if !b.open(p, in) {
				return false
			}
		default:
			in.dirs = append(in.dirs, p)
		}
		if len(in.dirs)+len(in.files) > MaxBeside {
			return false
		}
	}
	return true
}
