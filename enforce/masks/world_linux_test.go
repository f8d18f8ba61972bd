package masks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// world is a mount namespace with one tree in it, and the masks of a session there.
type world struct {
	Mounter
	dir       string
	marked    int
	forgotten []uint64
	frozen    int // of what was marked: how many trees were read-only then
}

// inWorld calls do in a mount namespace of its own, where dir has the files of a tree. do may not
// end the test: it is on another thread.
func inWorld(t *testing.T, do func(*world) error) {
	t.Helper()
	if os.Geteuid() != 0 {
		must.True(t, strings.TrimSpace(os.Getenv("CHATD_TEST_REQUIRE")) != "all",
			"needs root, and CHATD_TEST_REQUIRE=all")
		t.Skip("SKIPPED: needs root")
	}
	idle := exec.Command("sleep", "600")
	idle.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	must.Do(t, idle.Start())
	defer func() { _ = idle.Process.Kill(); _ = idle.Wait() }()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", idle.Process.Pid))
	must.Do(t, err)
	defer ns.Close()
	w := &world{dir: t.TempDir()}
	sources := t.TempDir()
	dir, file := filepath.Join(sources, "dir"), filepath.Join(sources, "file")
	must.Do(t, errors.Join(os.Mkdir(dir, 0), os.WriteFile(file, nil, 0)))
	if w.Sources, err = OpenSources(dir, file); err != nil {
		t.Fatal(err)
	}
	expect.NoError(t, sys.InMountNamespace(ns, func() error {
		if err := w.fill(); err != nil {
			return err
		}
		defer w.Bases[0].Close()
		return do(w)
	}))
}

// fill makes the tree, a file system of its own, and opens it as a session's is.
func (w *world) fill() error {
	if err := unix.Mount("tree", w.dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	for _, name := range []string{
		"free", "closed", "fixed", "d/in", "d/secret", "d/pub/free", "d/pub/secret",
	} {
		at := filepath.Join(w.dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err = errors.Join(err, os.WriteFile(at, []byte("x"), 0o644)); err != nil {
			return err
		}
	}
	now, err := mounted()
	if err != nil {
		return err
	}
	b := &pathclass.Base{Dir: true}
	for _, m := range now {
		if m.Path == w.dir {
			b.Mount = m
		}
	}
	if b.Top, err = unix.Open(w.dir, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		b.Tree, err = CopyBase(b.Top)
	}
	if err == nil {
		b.Handles, err = sys.OpenBeneath(b.Top, "", unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err == nil {
		w.Root, err = unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		w.ProcFD, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	w.Bases = []*pathclass.Base{b}
	w.Mark = func(tree int) error {
		var st unix.Statfs_t
		if w.marked++; unix.Fstatfs(tree, &st) == nil && st.Flags&unix.ST_RDONLY != 0 {
			w.frozen++
		}
		return nil
	}
	w.Forget = func(id uint64) { w.forgotten = append(w.forgotten, id) }
	return err
}

// mounted are the mounts of this thread's namespace, by id.
func mounted() (map[uint64]sys.Mount, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	lines, err := sys.ParseMounts(string(text))
	all := map[uint64]sys.Mount{}
	for _, l := range lines {
		all[uint64(l.ID)] = l
	}
	return all, err
}

// place is a place of the tree as a walk finds it.
func (w *world) place(name string, class, parent filerules.Class) pathclass.Place {
	p := pathclass.Place{Path: filepath.Join(w.dir, name), Class: class, Parent: parent}
	fd, err := unix.Openat(w.Bases[0].Tree, name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return p
	}
	defer unix.Close(fd)
	if st, err := sys.StatFD(fd); err == nil {
		p.Inode, p.Dir = sys.InodeOf(&st), st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	return p
}

// apply makes the masks those of places, as one walk of a session does.
func (w *world) apply(places ...pathclass.Place) error {
	now, err := mounted()
	if err != nil {
		return err
	}
	w.marked, w.forgotten = 0, nil
	slices.SortFunc(places, pathclass.ByPath)
	w.Exceptions = slices.ContainsFunc(places, pathclass.Place.IsException)
	return w.Apply(places, now)
}

// looks says of each file what is read of it, or - where it is not there, and + where it can be
// written to as well.
func (w *world) looks(names ...string) string {
	var all []string
	for _, name := range names {
		at := filepath.Join(w.dir, name)
		b, err := os.ReadFile(at)
		what := string(b)
		if err != nil {
			what = "-"
		}
		if f, err := os.OpenFile(at, os.O_WRONLY, 0); err == nil {
			_ = f.Close()
			what += "+"
		}
		all = append(all, name+"="+what)
	}
	return strings.Join(all, " ")
}
