package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// WriteShims makes dir, with a link to target for every shim: target is the path inside a
// session, [InsideShim]. Commands that never run have a shim, and so have those of
// [GuardedNames] that [Programs.WriteBin] linked in bin. See [setLinks] for existing links.
func WriteShims(dir, target, bin string) error {
	links := map[string]string{}
	for name := range refusals {
		links[name] = target
	}
	for _, name := range guardedNames {
		if _, err := os.Lstat(filepath.Join(bin, name)); err == nil {
			links[name] = target
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot make links in %s: %w", dir, err)
		}
	}
	return setLinks(dir, links)
}

// setLinks makes dir, owned by root (0755), hold exactly these links, name to target. It changes
// the directory in place, one name at a time, each by rename(2). A session that has the directory
// bound sees the change immediately, and never misses a name that stays. It does not rewrite a
// correct link, and removes every other entry; a directory in dir is an error.
func setLinks(dir string, links map[string]string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot make links in %s: %w", dir, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the umask may have taken bits
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, e := range entries {
		if _, wanted := links[e.Name()]; wanted {
			there[e.Name()] = true
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for name, target := range links {
		set := os.Symlink // one system call, not four: a first start makes thousands of links
		if there[name] {
			set = setLink
		}
		if err := set(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// setLink replaces path by a link to target, unless it is one.
func setLink(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	dir, name := filepath.Split(path)
	// No program gets a link whose name begins with a dot, so this one is free.
	fresh := filepath.Join(dir, ".new."+name)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// Programs are the programs of the host that a PATH may have, from the search directories in
// their order. It examines each program once, for any number of PATHs.
type Programs struct {
	search []string
	all    map[string]string // name to path; nil until a PATH has them all
}

// NewPrograms searches directories whose host paths are the same inside a session, as /usr/bin.
func NewPrograms(search []string) *Programs { return &Programs{search: search} }

// WriteBin makes dir hold a link to each of the commands; "*" means all programs.
//
// A program that is setuid or has file capabilities gets no link, nor does one that resolves to a
// path that no session sees. If commands names it, it is in missing, as
// is a program that does not exist, in the order of commands. A shim of the same name comes
// before it in PATH.
func (ps *Programs) WriteBin(dir string, commands []string) (missing []string, err error) {
	links := map[string]string{}
	for _, c := range commands {
		if c == "*" {
			if err := ps.findAll(); err != nil {
				return nil, err
			}
			maps.Copy(links, ps.all)
			continue
		}
		p, err := findProgram(c, ps.search)
		if err != nil {
			return nil, err
		}
		if p == "" {
			missing = append(missing, c)
			continue
		}
		links[c] = p
	}
	return missing, setLinks(dir, links)
}

func (ps *Programs) findAll() error {
	if ps.all != nil {
		return nil
	}
	all := map[string]string{}
	for _, dir := range ps.search {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot list programs: %w", err)
		}
		for _, e := range entries {
			if _, have := all[e.Name()]; have || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			p := filepath.Join(dir, e.Name())
			ok, err := mayLink(p)
			if err != nil {
				return err
			}
			if ok {
				all[e.Name()] = p
			}
		}
	}
	ps.all = all
	return nil
}

// findProgram returns the path of the first program of that name, as the host's PATH would find
// it, or "" if there is none or it may not be linked.
func findProgram(name string, search []string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
		return "", chat.Invalid("cannot link command %s: want a program name", chat.Quote(name))
	}
	for _, dir := range search {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err != nil {
			continue
		}
		ok, err := mayLink(p)
		if err != nil || !ok {
			return "", err
		}
		return p, nil
	}
	return "", nil
}

// visible are the host's directories of programs that [View] shows.
var visible = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"}

// mayLink reports whether p resolves to a regular file that everyone may execute, that a
// session sees, and that does not run as root by its bits. A setgid program may be linked, as
// Debian's ssh-agent: under no_new_privs it keeps the chat's group.
func mayLink(p string) (bool, error) {
	real, err := filepath.EvalSymlinks(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a dangling link
	}
	if err != nil {
		return false, fmt.Errorf("cannot check a program: %w", err)
	}
	seen := slices.ContainsFunc(visible, func(v string) bool { return strings.HasPrefix(real, v+"/") })
	info, err := os.Lstat(real)
	if err != nil {
		return false, fmt.Errorf("cannot check a program: %w", err)
	}
	if !seen || !info.Mode().IsRegular() || info.Mode()&0o001 == 0 || info.Mode()&fs.ModeSetuid != 0 {
		return false, nil
	}
	gains, err := hasFileCapabilities(real)
	return !gains, err
}
