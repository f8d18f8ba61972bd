package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func modeOf(t *testing.T, name string) os.FileMode {
	t.Helper()
	fi := must.Get(os.Lstat(name))(t)
	return fi.Mode()
}

// TestModes: 0600 for a new file and 0700 for a new directory by the tool's umask and
// without one, and an existing file keeps its permission bits, but no set-id bit.
func TestModes(t *testing.T) {
	w := newWorld(t)
	defer syscall.Umask(syscall.Umask(0o077))
	must.Get(w.write("new/dir/file", "x"))(t)
	must.Get(w.append("appended", "x"))(t)
	syscall.Umask(0)
	must.Get(w.write("open/file", "x"))(t)
	for name, want := range map[string]os.FileMode{"appended": 0o600, "open/file": 0o600, "new/dir/file": 0o600, "new": 0o700 | os.ModeDir, "new/dir": 0o700 | os.ModeDir, "open": 0o700 | os.ModeDir} {
		expect.Equal(t, modeOf(t, w.home+"/"+name), want, "%s has mode", name)
	}
	for _, mode := range []os.FileMode{0o755, 0o640, 0o600, 0o666 | os.ModeSetuid} {
		name := fmt.Sprintf("mode-%o", mode)
		put1(t, w.home+"/"+name, "old")
		for _, do := range []func() error{
			func() error { _, err := w.write(name, "text"); return err },
			func() error { _, err := w.edit(name, "text", "other"); return err },
			func() error { _, err := w.append(name, "x"); return err },
		} {
			must.Do(t, os.Chmod(w.home+"/"+name, mode))
			must.Do(t, do())
			got := modeOf(t, w.home+"/"+name)
			expect.True(t, got.Perm() == mode.Perm(), "%s has mode %v, want %v", name, got, mode)
		}
	}
	a, err := w.write("mode-755", "x")
	expect.True(t, err == nil && a.Mode == 0o755 && !a.Created && a.Size == 1 && a.Bytes == 1,
		"answered %+v, %v", a, err)
}

// TestHardLink: a write gives the name a new file and leaves the other name with
// the old one; an append is seen under both.
func TestHardLink(t *testing.T) {
	w := newWorld(t)
	for name, do := range map[string]func() error{
		"write": func() error { _, err := w.write("write", "new"); return err },
		"edit":  func() error { _, err := w.edit("edit", "old", "new"); return err },
	} {
		put1(t, w.home+"/"+name, "old")
		must.Do(t, os.Link(w.home+"/"+name, w.home+"/other-"+name))
		must.Do(t, do())
		expect.True(t, cat(t, w.home+"/"+name) == "new" && cat(t, w.home+"/other-"+name) == "old",
			"%s wrote through a hard link", name)
	}
	put1(t, w.home+"/append", "old")
	os.Link(w.home+"/append", w.home+"/other-append")
	_, err := w.append("append", "new")
	expect.True(t, err == nil && cat(t, w.home+"/other-append") == "oldnew", "append: %v", err)
}

// TestBinary: any bytes pass through a stream, in and out, with their hash.
func TestBinary(t *testing.T) {
	w := newWorld(t)
	data := bytes.Repeat([]byte{0, 0xff, '\r', '\n', 0xc3, 0x28, 0x1b}, 300_000)
	sum := sha256.Sum256(data)
	a, err := w.WriteFile(filewire.WriteFile{Path: "b", Stream: true, Hash: true}, bytes.NewReader(data))
	must.True(t, err == nil && a.SHA256 == hex.EncodeToString(sum[:]) && a.Size == int64(len(data)),
		"%+v, %v", a, err)
	got, a, err := w.read(filewire.ReadFile{Path: "b", Stream: true, Hash: true})
	must.True(t, err == nil && got == string(data) && a.SHA256 == hex.EncodeToString(sum[:]) && !a.Truncated,
		"read %d bytes, %+v, %v", len(got), a, err)
	a, err = w.AppendFile(filewire.WriteFile{Path: "b", Stream: true, Hash: true}, bytes.NewReader(data))
	must.True(t, err == nil && a.SHA256 == hex.EncodeToString(sum[:]), "%+v, %v", a, err)
	expect.True(t, cat(t, w.home+"/b") == string(data)+string(data), "append_file changed the content")
	put1(t, w.home+"/e", "a\xff\x00b\xffc")
	if a, err := w.edit("e", "b", "ü"); err != nil || cat(t, w.home+"/e") != "a\xff\x00ü\xffc" || a.Diff != "" || a.DiffOmitted != "binary" {
		t.Errorf("edit: %+v, %v", a, err)
	}
}

// TestCutOff: content that ends early, that is too large or that fails leaves
// the old file, no directory and no temporary file.
func TestCutOff(t *testing.T) {
	w := newWorld(t, func(o *filewire.Options) { o.MaxBytes = 3 << 20 })
	put1(t, w.home+"/f", "old")
	for name, body := range map[string]func() io.Reader{
		"too large":           func() io.Reader { return io.LimitReader(zeros{}, 3<<20+1) },
		"fails at once":       func() io.Reader { return failingReader },
		"fails in the middle": func() io.Reader { return io.MultiReader(io.LimitReader(zeros{}, 2<<20), failingReader) },
		"ends early": func() io.Reader {
			return io.MultiReader(io.LimitReader(zeros{}, 2<<20), iotest.ErrReader(io.ErrUnexpectedEOF))
		},
	} {
		for _, path := range []string{"f", "new/dir/f", "created"} {
			a, err := w.WriteFile(filewire.WriteFile{Path: path, Stream: true}, body())
			expect.True(t, err != nil, "%s: write_file said %+v", name, a)
			a, err = w.AppendFile(filewire.WriteFile{Path: path, Stream: true}, body())
			expect.True(t, err != nil, "%s: append_file said %+v", name, a)
		}
		w.has(t, "f")
		expect.Equal(t, cat(t, w.home+"/f"), "old", "%s: the file has", name)
	}
	small := newWorld(t, func(o *filewire.Options) { o.MaxBytes = 10 })
	for _, path := range []string{"new", "new/dir/f"} {
		if _, err := small.append(path, "eleven byte"); !errors.Is(err, chat.ErrInvalid) || len(ls(t, small.home)) > 0 {
			t.Errorf("a file made for an append that was refused stayed: %v, %v", ls(t, small.home), err)
		}
	}
	put1(t, w.home+"/f", strings.Repeat("x", 3<<20))
	expect.Is(t, expect.Err(w.append("f", "y")), chat.ErrInvalid, "an append beyond the bound")
	_, err := w.AppendFile(filewire.WriteFile{Path: "f2", Stream: true}, io.LimitReader(zeros{}, 3<<20))
	expect.True(t, err == nil, "an append up to the bound: %v", err)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestFullDisk: a file size limit stands for a full disk; content that cannot be written whole
// leaves no trace.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	put1(t, w.home+"/f", "old\n")
	f := must.Get(os.OpenFile(w.home+"/f", os.O_WRONLY|os.O_APPEND, 0))(t)
	defer f.Close()
	s := &spool{size: 2 << 20}
	s.file = must.Get(os.Create(t.TempDir() + "/spool"))(t)
	defer s.close()
	if err := s.file.Truncate(1 << 20); err != nil { // the second piece is not there
		t.Fatal(err)
	}
	if err := s.writeTo(f, 4); err == nil || cat(t, w.home+"/f") != "old\n" {
		t.Errorf("half an append stayed: %v, %d bytes", err, len(cat(t, w.home+"/f")))
	}
}

// TestSimultaneousAppends: every line of 100 simultaneous callers in two processes is written, whole, also
// between appends that take several writes.
func TestSimultaneousAppends(t *testing.T) {
	w := newWorld(t)
	cmd := child(t, "append", "CHATD_FILES_DIR="+w.home)
	must.Do(t, cmd.Start())
	appendMany(t.Errorf, w, "a")
	must.Do(t, cmd.Wait())
	small, big := map[string]int{}, map[string]int{}
	for line := range strings.Lines(cat(t, w.home+"/logs/log")) {
		if len(line) > filewire.MaxPiece {
			must.True(t, line == strings.Repeat(line[:1], len(line)-1)+"\n",
				"another append is in the middle of one of %d bytes", len(line))
			big[line[:1]]++
			continue
		}
		small[line]++
	}
	must.True(t, len(small) == 100*appendRounds && len(big) == 4,
		"%d small and %d large appends are there, want %d and 4", len(small), len(big), 100*appendRounds)
	for line, n := range small {
		must.True(t, n == 1 && strings.HasSuffix(line, "-end\n"), "%q is there %d times", line, n)
	}
}

const appendRounds = 5

// appendMany makes 50 simultaneous callers that append lines, and two that append more than one
// write(2) takes.
func appendMany(fail func(string, ...any), w world, who string) {
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range appendRounds {
				if _, err := w.append("logs/log", fmt.Sprintf("%s-%d-%d-%s-end\n", who, i, j, strings.Repeat("x", 100*i))); err != nil {
					fail("append: %v", err)
				}
			}
		})
	}
	for i := range 2 {
		all.Go(func() {
			c := string(who[0] + byte(i)*10)
			body := strings.NewReader(strings.Repeat(c, 3*filewire.MaxPiece+7) + "\n")
			if _, err := w.AppendFile(filewire.WriteFile{Path: "logs/log", Stream: true}, body); err != nil {
				fail("append: %v", err)
			}
		})
	}
	all.Wait()
}

func appendChild() {
	appendMany(func(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }, childWorld(), "b")
}

// TestAppendMeetsEdit: an append is not lost to an edit that replaces the file at
// the same moment, and no edit to another.
func TestAppendMeetsEdit(t *testing.T) {
	w := newWorld(t)
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "mark-%02d\n", i)
	}
	put1(t, w.home+"/f", text.String())
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			_, err := w.edit("f", fmt.Sprintf("mark-%02d\n", i), fmt.Sprintf("done-%02d\n", i))
			expect.True(t, err == nil, "%v", err)
		})
		all.Go(func() {
			expect.NoError(t, expect.Err(w.append("f", fmt.Sprintf("line-%02d\n", i))))
		})
	}
	all.Wait()
	got := cat(t, w.home+"/f")
	expect.True(t, strings.Count(got, "done-") == 40 && strings.Count(got, "line-") == 40 && len(got) == 80*8,
		"%d edits and %d appends of 40 are there", strings.Count(got, "done-"), strings.Count(got, "line-"))
	w.has(t, "f")
}

// TestSimultaneousWriters: of many whole writes one wins, whole, and a reader sees only whole ones.
func TestSimultaneousWriters(t *testing.T) {
	w := newWorld(t)
	size := 300_000
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 5 {
				expect.NoError(t, expect.Err(w.write("f", strings.Repeat(string('a'+byte(i)), size))))
				got, _, err := w.read(filewire.ReadFile{Path: "f"})
				expect.True(t, err == nil && len(got) == size && got == strings.Repeat(got[:1], size),
					"read a mixture: %d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()
	w.has(t, "f")
}

// TestLockHeld: while a process holds the lock forever, a caller gives up after LockWait.
func TestLockHeld(t *testing.T) {
	w := newWorld(t, func(o *filewire.Options) { o.LockWait = 50 * time.Millisecond })
	put1(t, w.home+"/f", "text")
	f := must.Get(os.Open(w.home + "/f"))(t)
	defer f.Close()
	must.Do(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	atOnce(t, func() {
		expect.Is(t, expect.Err(w.append("f", "x")), chat.ErrBusy, "append")
		expect.Is(t, expect.Err(w.edit("f", "text", "x")), chat.ErrBusy, "edit")
	})
	expect.True(t, cat(t, w.home+"/f") == "text", "written below somebody's lock")
}

// TestRunningProgram: a running program can be replaced.
func TestRunningProgram(t *testing.T) {
	w := newWorld(t)
	sleep := must.Get(exec.LookPath("sleep"))(t)
	put1(t, w.home+"/prog", cat(t, sleep))
	must.Do(t, os.Chmod(w.home+"/prog", 0o755))
	cmd := exec.Command(w.home+"/prog", "600")
	must.Do(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	_, err := w.write("prog", "new")
	expect.True(t, err == nil && modeOf(t, w.home+"/prog") == 0o755, "write: %v", err)
}

var points = []string{"temp.made", "temp.filled", "temp.synced", "exchanged", "renamed", "dir.synced"}

// TestKill kills a tool with SIGKILL at each point: the old content is there or
// the new, and after the next write nothing else.
func TestKill(t *testing.T) {
	big := strings.Repeat("x", filewire.MaxPiece) + "\n"
	for _, c := range []struct {
		tool   filewire.Tool
		points []string
		wanted []string // what the file may hold
	}{
		{filewire.WriteFileTool, points, []string{"old\n", "new\n"}},
		{filewire.EditFileTool, points, []string{"old\n", "new\n"}},
		{filewire.AppendFileTool, []string{"append.locked", "append.written"}, []string{"old\n", "old\nnew\n"}},
		{"append_file, large", []string{"temp.made", "append.locked", "append.piece", "append.written"}, []string{"old\n", "old\n" + big[:filewire.MaxPiece], "old\n" + big}},
		{"write_file, new", []string{"temp.made", "temp.filled", "temp.synced", "renamed", "dir.synced"}, []string{"none", "new\n"}},
	} {
		for _, point := range c.points {
			t.Run(string(c.tool)+" at "+point, func(t *testing.T) {
				w := newWorld(t)
				if c.tool != "write_file, new" {
					put1(t, w.home+"/f", "old\n")
				}
				err := child(t, "kill", "CHATD_FILES_DIR="+w.home, "CHATD_FILES_TOOL="+string(c.tool), "CHATD_FILES_POINT="+point).Run()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("%s was not reached: %v", point, err)
				}
				got := "none"
				if b, err := os.ReadFile(w.home + "/f"); err == nil {
					got = string(b)
				}
				expect.True(t, slices.Contains(c.wanted, got), "it holds %d bytes: %.40q", len(got), got)
				t.Logf("left %v", ls(t, w.home))
				must.Get(w.write("f", "next"))(t)
				w.has(t, "f")
				expect.Equal(t, cat(t, w.home+"/f"), "next", "after the next write the file has")
			})
		}
	}
}

func killChild() {
	failpoint = func(at string) {
		if at == os.Getenv("CHATD_FILES_POINT") {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	w, err := childWorld(), error(nil)
	switch os.Getenv("CHATD_FILES_TOOL") {
	case "write_file", "write_file, new":
		_, err = w.write("f", "new\n")
	case "edit_file":
		_, err = w.edit("f", "old", "new")
	case "append_file":
		_, err = w.append("f", "new\n")
	case "append_file, large":
		_, err = w.AppendFile(filewire.WriteFile{Path: "f", Stream: true}, strings.NewReader(strings.Repeat("x", filewire.MaxPiece)+"\n"))
	}
	fmt.Fprintln(os.Stderr, "not killed:", err)
}

// TestSweep: only an unlocked regular file with a name of the tools is removed.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	put1(t, w.home+"/.tmp-17-1700000000000000000", "left")
	put1(t, w.home+"/.tmp-18-1700000000000000000", "in use")
	put1(t, w.home+"/target", "x")
	kept := []string{".tmp-1-2", ".tmp-17-170000000000000000", ".tmp-17-1700000000000000000.txt", "a.tmp-17-1700000000000000000", ".tmp-18-1700000000000000000", "target"}
	for _, name := range kept[:4] {
		put1(t, w.home+"/"+name, "the chat's own")
	}
	link(t, "target", w.home+"/.tmp-19-1700000000000000000")
	mkdir(t, w.home+"/.tmp-20-1700000000000000000")
	syscall.Mkfifo(w.home+"/.tmp-21-1700000000000000000", 0o600)
	f := must.Get(os.Open(w.home + "/.tmp-18-1700000000000000000"))(t)
	defer f.Close()
	must.Do(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	atOnce(t, func() { expect.NoError(t, expect.Err(w.write("f", "x"))) })
	kept = append(kept, ".tmp-19-1700000000000000000", ".tmp-20-1700000000000000000", ".tmp-21-1700000000000000000", "f")
	slices.Sort(kept)
	w.has(t, kept...)
}

// TestReplace: a file that takes the target's place at the last moment is replaced only if it is
// regular; also where names cannot be exchanged.
func TestReplace(t *testing.T) {
	for _, plain := range []bool{false, true} {
		for name, put := range map[string]func(string){
			"link":      func(n string) { link(t, "elsewhere", n) },
			"directory": func(n string) { mkdir(t, n) },
			"FIFO":      func(n string) { syscall.Mkfifo(n, 0o600) },
			"file":      func(n string) { put1(t, n, "other") },
			"nothing":   func(n string) { os.Remove(n) },
		} {
			t.Run(fmt.Sprintf("%s, plain %v", name, plain), func(t *testing.T) {
				w := newWorld(t)
				put1(t, w.home+"/f", "old")
				writer, err := w.beginWrite(filewire.Write, "f")
				must.Do(t, err)
				os.Remove(w.home + "/f")
				put(w.home + "/f")
				before := "nothing"
				if fi, err := os.Lstat(w.home + "/f"); err == nil {
					before = fi.Mode().String()
				}
				if plain {
					err = writer.renameOver()
				} else {
					err = writer.rename()
				}
				writer.end(&err)
				expect.True(t, (name == "file" || name == "nothing") == (err == nil), "rename: %v", err)
				after := modeOf(t, w.home+"/f").String()
				expect.True(t, before == "nothing" || after == before, "%s became %s", before, after)
				w.has(t, "f")
			})
		}
	}
}

// TestSyncOrder: the content is synced before it gets its name, the directory
// after that, and a directory that was made in the one that it is in. What it is
// worth when the power fails is for a machine to show.
func TestSyncOrder(t *testing.T) {
	w := newWorld(t)
	var events []string
	failpoint = func(at string) { events = append(events, at) }
	fsync = func(f *os.File) error {
		what, err := nameOf(int(f.Fd()))
		expect.NoError(t, err)
		what = strings.TrimPrefix(what, w.home)
		if i := strings.Index(what, ".tmp-"); i >= 0 {
			what = what[:i] + "temp"
		}
		events = append(events, "sync "+what)
		return f.Sync()
	}
	defer func() { failpoint, fsync = func(string) {}, (*os.File).Sync }()
	for _, c := range []struct {
		do   func() (filewire.Answer, error)
		want string
	}{
		{func() (filewire.Answer, error) { return w.write("a/b/f", "x") },
			"sync |sync /a|temp.made|temp.filled|sync /a/b/temp|temp.synced|renamed|sync /a/b|dir.synced"},
		{func() (filewire.Answer, error) { return w.write("a/b/f", "y") },
			"temp.made|temp.filled|sync /a/b/temp|temp.synced|exchanged|renamed|sync /a/b|dir.synced"},
		{func() (filewire.Answer, error) { return w.edit("a/b/f", "y", "z") },
			"temp.made|temp.filled|sync /a/b/temp|temp.synced|exchanged|renamed|sync /a/b|dir.synced"},
		{func() (filewire.Answer, error) { return w.append("a/b/f", "y") }, "append.locked|append.written|sync /a/b/f"},
		{func() (filewire.Answer, error) { return w.append("a/g", "y") }, "append.locked|append.written|sync /a/g|sync /a"},
	} {
		events = nil
		must.Get(c.do())(t)
		got := strings.Join(events, "|")
		expect.True(t, got == c.want, "got  %s\nwant %s", got, c.want)
	}
}

// TestLinkSwappedTwice: the target changes places with a link before the file gets its name, and
// once more before the link has its name back. From then on a sweep, of a write beside this one,
// may take away what has the temporary name: that must never be the link.
func TestLinkSwappedTwice(t *testing.T) {
	w := newWorld(t)
	file, other := w.home+"/file", w.home+"/other"
	put1(t, file, "old")
	link(t, w.out+"/secret", other)
	swapped := func() {
		expect.NoError(t, unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE))
	}
	exchanges := 0
	defer func() { failpoint = func(string) {} }()
	failpoint = func(at string) {
		switch at {
		case "temp.synced":
			swapped()
		case "exchanged":
			if exchanges++; exchanges == 1 {
				swapped()
				return
			}
			left, _ := filepath.Glob(w.home + "/.tmp-*") // the end of a sweep that began before
			for _, name := range left {
				_ = os.Remove(name)
			}
		}
	}
	expect.Is(t, expect.Err(w.write("file", "new")), chat.ErrBusy, "writing gave")
	expect.Equal(t, must.Get(os.Readlink(file))(t), w.out+"/secret", "the link")
	if got := cat(t, other); got != "new" || len(ls(t, w.home)) != 2 {
		t.Errorf("beside the link there are %v, with %q", ls(t, w.home), got)
	}
}
