package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// nest makes directories in one another below dir, and opens the last: no path leads there.
func nest(t *testing.T, dir string, levels int, name string) *os.File {
	t.Helper()
	at, err := os.Open(dir)
	must(t, err)
	for range levels {
		must(t, os.Mkdir(inside(at, name), 0o700))
		next, err := os.Open(inside(at, name))
		must(t, errors.Join(err, at.Close()))
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
		names, err := dir.Readdirnames(-1)
		must(t, err)
		slices.Sort(names)
		for _, name := range names {
			at, below := inside(dir, name), join(path, name)
			st, err := os.Lstat(at)
			must(t, err)
			if st.IsDir() {
				must(t, os.Chmod(at, st.Mode()|0o700))
			}
			all[below] = st.Mode().String() + " " + tell(t, at, below, first)
			if st.IsDir() {
				next, err := os.Open(at)
				must(t, err)
				walk(next, below)
				must(t, next.Close())
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
	at, err := os.Open(root)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "first"), []byte("content"), 0o600))
	for i := range levels {
		next := nest(t, inside(at, ""), 1, "ddd")
		if i%100 == 50 {
			must(t, os.WriteFile(inside(next, "file"), fmt.Appendf(nil, "file %d", i), 0o640))
			must(t, os.Link(filepath.Join(root, "first"), inside(next, "hard")))
			must(t, os.Link(inside(next, "file"), fmt.Sprintf("%s/up %d", root, i)))
			must(t, os.Symlink("../ddd", inside(next, "soft")))
			must(t, os.Chtimes(inside(next, "file"), time.Unix(9, 5), time.Unix(int64(i), 5)))
		}
		if i == 700 { // names that are read in parts, between directories that are deep too
			for n := range 900 {
				must(t, os.WriteFile(inside(next, fmt.Sprintf("name %d of many", n)), nil, 0o600))
				if n%100 == 5 {
					must(t, nest(t, inside(next, ""), 3*maxOpen, fmt.Sprintf("deep %d", n)).Close())
				}
			}
		}
		if i%600 == 3 {
			defer func(parent *os.File) { // when it has all that is below
				must(t, errors.Join(os.Chmod(inside(parent, "ddd"), 0), parent.Close()))
			}(at)
		} else {
			must(t, at.Close())
		}
		at = next
	}
	must(t, at.Close())
}

// fewDescriptors lets the test open as few as a chat may have.
func fewDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: old.Max}))
	return func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }
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
	unpacked, err := Unpack(openDirectory(t, to), bytes.NewReader(stream), "", wide)
	must(t, err)
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
	if fmt.Sprint(packed) != fmt.Sprint(unpacked) {
		t.Errorf("packed %+v, unpacked %+v", packed, unpacked)
	}
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
	must(t, nest(t, from, levels, strings.Repeat("d", 29)).Close())
	r, w := io.Pipe()
	go func() {
		_, err := Pack(openDirectory(t, from), w, "", nil)
		w.CloseWithError(err)
	}()
	heap := &liveHeap{Reader: r}
	s, err := Unpack(openDirectory(t, to), heap, "", wide)
	if err != nil || s.Entries != levels {
		t.Errorf("%+v, %v", s, err)
	}
	if heap.most == 0 || heap.most > most {
		t.Errorf("%d bytes of heap, want at most %d", heap.most, most)
	}
}

// TestAttackMovedDirectory: a directory that is moved elsewhere while it is read leads to no other
// parent.
func TestAttackMovedDirectory(t *testing.T) {
	from, elsewhere := t.TempDir(), t.TempDir()
	must(t, nest(t, from, 2*maxOpen, "d").Close())
	d := newDescent(openDirectory(t, from))
	for range 2 * maxOpen {
		st, err := d.stat("d")
		must(t, err)
		dir, err := d.open("d", &st)
		must(t, err)
		d.down(dir)
	}
	must(t, os.Rename(filepath.Join(from, "d/d/d"), filepath.Join(elsewhere, "d")))
	for range 2*maxOpen - 3 {
		_, _, err := d.up()
		must(t, err)
	}
	if _, _, err := d.up(); !errors.Is(err, chat.ErrConflict) {
		t.Errorf("out of the directory that was moved: %v", err)
	}
	must(t, d.leaveAll())
}
