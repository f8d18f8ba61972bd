package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// nest makes directories in one another below dir, and opens the last: no path leads there.
func nest(t *testing.T, dir string, levels int, name string) *os.File {
	t.Helper()
	at := must.Get(os.Open(dir))(t)
	for range levels {
		must.Do(t, os.Mkdir(inside(at, name), 0o700))
		next, err := os.Open(inside(at, name))
		must.Do(t, errors.Join(err, at.Close()))
		at = next
	}
	return at
}

// inside is a short path of a name in an open directory.
func inside(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// describeDeep is describe for a tree of any depth. It leaves closed directories open.
func describeDeep(t *testing.T, root string) map[string]string {
	t.Helper()
	all, first := map[string]string{}, map[uint64]string{}
	var walk func(dir *os.File, path string)
	walk = func(dir *os.File, path string) {
		names := must.Get(dir.Readdirnames(-1))(t)
		slices.Sort(names)
		for _, name := range names {
			at, below := inside(dir, name), join(path, name)
			st := must.Get(os.Lstat(at))(t)
			if st.IsDir() {
				must.Do(t, os.Chmod(at, st.Mode()|0o700))
			}
			all[below] = st.Mode().String() + " " + tell(t, at, below, first)
			if st.IsDir() {
				next := must.Get(os.Open(at))(t)
				walk(next, below)
				must.Do(t, next.Close())
			}
		}
	}
	walk(openDirectory(t, root), "")
	return all
}

// furnishDeep makes 2,000 directories in one another, 1,200 with -short, and what is hard to keep in
// some of them.
func furnishDeep(t *testing.T, root string) {
	t.Helper()
	levels := 2000
	if testing.Short() {
		levels = 1200
	}
	at := must.Get(os.Open(root))(t)
	must.Do(t, os.WriteFile(filepath.Join(root, "first"), []byte("content"), 0o600))
	for i := range levels {
		next := nest(t, inside(at, ""), 1, "ddd")
		if i%100 == 50 {
			must.Do(t, os.WriteFile(inside(next, "file"), fmt.Appendf(nil, "file %d", i), 0o640))
			must.Do(t, os.Link(filepath.Join(root, "first"), inside(next, "hard")))
			must.Do(t, os.Link(inside(next, "file"), fmt.Sprintf("%s/up %d", root, i)))
			must.Do(t, os.Symlink("../ddd", inside(next, "soft")))
			must.Do(t, os.Chtimes(inside(next, "file"), time.Unix(9, 5), time.Unix(int64(i), 5)))
		}
		if i == 700 { // names that are read in parts, between directories that are deep too
			for n := range 900 {
				must.Do(t, os.WriteFile(inside(next, fmt.Sprintf("name %d of many", n)), nil, 0o600))
				if n%100 == 5 {
					must.Do(t, nest(t, inside(next, ""), 3*maxOpen, fmt.Sprintf("deep %d", n)).Close())
				}
			}
		}
		if i%600 == 3 {
			defer func(parent *os.File) { // when it has all that is below
				must.Do(t, errors.Join(os.Chmod(inside(parent, "ddd"), 0), parent.Close()))
			}(at)
		} else {
			must.Do(t, at.Close())
		}
		at = next
	}
	must.Do(t, at.Close())
}

// fewDescriptors lets the test open as few as a chat may have.
func fewDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: old.Max}))
	return func() { must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }
}

// TestDeepTree: a tree of many directories in one another, whose paths no system call takes, is
// unpacked as it was, by a process that may have 64 descriptors. Packing changes nothing.
func TestDeepTree(t *testing.T) {
	if !isOwner(t) {
		return
	}
	from, to := t.TempDir(), t.TempDir()
	furnishDeep(t, from)
	restore := fewDescriptors(t)
	stream, packed := pack(t, from, "")
	unpacked := must.Get(Unpack(openDirectory(t, to), bytes.NewReader(stream), "", wide))(t)
	restore()
	want := describeDeep(t, from)
	same(t, want, describeDeep(t, to))
	longest := 0
	for path := range want {
		longest = max(longest, len(path))
	}
	if int(packed.Entries) != len(want) || longest <= unix.PathMax || packed.Left+packed.Copied > 0 {
		t.Errorf("%+v, want %d entries; the longest path has %d bytes", packed, len(want), longest)
	}
	expect.True(t, fmt.Sprint(packed) == fmt.Sprint(unpacked),
		"packed %+v, unpacked %+v", packed, unpacked)
}

// liveHeap is read from, and has the most that was on the heap then.
type liveHeap struct {
	io.Reader
	most uint64
}

func (l *liveHeap) Read(b []byte) (int, error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l.most = max(l.most, m.HeapAlloc)
	return l.Reader.Read(b)
}

// TestDeepMemory: what is packed and unpacked of directories in one another holds one path of them.
func TestDeepMemory(t *testing.T) {
	const levels, most = 2_100, 40 << 20 // their paths have 66 MB
	from, to := t.TempDir(), t.TempDir()
	must.Do(t, nest(t, from, levels, strings.Repeat("d", 29)).Close())
	r, w := io.Pipe()
	go func() {
		_, err := Pack(openDirectory(t, from), w, "", nil)
		w.CloseWithError(err)
	}()
	heap := &liveHeap{Reader: r}
	s, err := Unpack(openDirectory(t, to), heap, "", wide)
	expect.True(t, err == nil && s.Entries == levels, "%+v, %v", s, err)
	expect.True(t, heap.most != 0 && heap.most <= most, "%d bytes of heap, want at most %d", heap.most, most)
}

// TestAttackMovedDirectory: a directory that is moved elsewhere while it is read leads to no other
// parent.
func TestAttackMovedDirectory(t *testing.T) {
	from, elsewhere := t.TempDir(), t.TempDir()
	must.Do(t, nest(t, from, 2*maxOpen, "d").Close())
	d := newDescent(openDirectory(t, from))
	for range 2 * maxOpen {
		st := must.Get(d.stat("d"))(t)
		dir := must.Get(d.open("d", &st))(t)
		d.down(dir)
	}
	must.Do(t, os.Rename(filepath.Join(from, "d/d/d"), filepath.Join(elsewhere, "d")))
	for range 2*maxOpen - 3 {
		_, _, err := d.up()
		must.Do(t, err)
	}
	expect.Is(t, expect.Err(d.up()), chat.ErrConflict, "out of the directory that was moved")
	must.Do(t, d.leaveAll())
}

// reflinked is a directory on a new file system that has reflinks.
func reflinked(t *testing.T) string {
	t.Helper()
	mkfs, err := exec.LookPath("mkfs.xfs")
	if os.Geteuid() != 0 || err != nil {
		must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root and mkfs.xfs")
		t.Skip("needs root and mkfs.xfs: to make a file system")
	}
	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must.Do(t, os.WriteFile(image, nil, 0o600))
	must.Do(t, os.Truncate(image, 320<<20))
	for _, args := range [][]string{{mkfs, "-q", image}, {"mount", "-o", "loop", image, at}} {
		must.Run(t, exec.Command(args[0], args[1:]...))
	}
	t.Cleanup(func() { must.Do(t, unix.Unmount(at, unix.MNT_DETACH)) })
	return at
}

// kept is what describe says, except for blocks: XFS takes some in advance.
func kept(t *testing.T, root string) map[string]string {
	all := describe(t, root)
	for name, says := range all {
		all[name] = regexp.MustCompile(` blocks \d+`).ReplaceAllString(says, "")
	}
	return all
}

// TestClone: a clone is what an unpack of a pack is, leaves the original as it was, and later
// writes to that do not reach it.
func TestClone(t *testing.T) {
	at := reflinked(t)
	from := everyKind(t)
	must.Do(t, os.Remove(from+"/long target")) // XFS has none over 1,024 bytes
	must.Run(t, exec.Command("cp", "-a", from, at+"/home"))
	must.Do(t, unix.Mknod(at+"/home/socket", unix.S_IFSOCK|0o600, 0))
	before := kept(t, at+"/home")
	must.Do(t, os.Mkdir(at+"/clone", 0o700))
	s, err := Clone(openDirectory(t, at+"/home"), openDirectory(t, at+"/clone"), nil)
	must.Do(t, err)
	same(t, before, kept(t, at+"/home"))
	expect.True(t, s.Left == 1 && len(s.LeftNames) == 1, "left out are %d, %q", s.Left, s.LeftNames)
	must.Do(t, os.WriteFile(at+"/home/plain", []byte("later"), 0))
	delete(before, "socket")
	same(t, before, kept(t, at+"/clone"))
	_, packed := pack(t, at+"/clone", "")
	expect.True(t, packed.Entries == s.Entries && packed.Bytes == s.Bytes,
		"packed were %+v, cloned %+v", packed, s)
	_, err = Clone(openDirectory(t, at+"/home"), openDirectory(t, at+"/clone"), nil)
	expect.Is(t, err, chat.ErrExists, "cloned onto a clone")
}

// TestCloneWithoutReflinks: where there are none the error says so.
func TestCloneWithoutReflinks(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(from+"/file", []byte("x"), 0o600))
	_, err := Clone(openDirectory(t, from), openDirectory(t, to), nil)
	var magic unix.Statfs_t
	must.Do(t, unix.Statfs(from, &magic))
	if magic.Type == unix.XFS_SUPER_MAGIC || magic.Type == unix.BTRFS_SUPER_MAGIC {
		t.Skip("the temporary directory has reflinks")
	}
	expect.Is(t, err, chat.ErrUnsupported, "")
}
