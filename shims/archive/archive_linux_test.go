package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// wide is more than any test has.
var wide = Limits{Entries: 1 << 30, Bytes: 1 << 50, FileSize: 1 << 50}

func openDirectory(t *testing.T, name string) *os.File {
	t.Helper()
	dir := must.Get(os.Open(name))(t)
	t.Cleanup(func() { dir.Close() })
	return dir
}

func pack(t *testing.T, dir, recipients string) ([]byte, Summary) {
	t.Helper()
	var out bytes.Buffer
	s := must.Get(Pack(openDirectory(t, dir), &out, recipients, nil))(t)
	return out.Bytes(), s
}

// everyKind makes a tree of all that Pack keeps.
func everyKind(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	at := time.Unix(1_234_567_890, 123_456_789)
	for _, name := range []string{
		"plain", "new\nline", "\xff\xfe not UTF-8", "-dash", " blank ", "=equal=", "trailing\\",
		strings.Repeat("n", 255), "umlaut ä", ".hidden", "sub/dir/deep", "sub/empty",
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(in(name)), 0o755))
		must.Do(t, os.WriteFile(in(name), bytes.Repeat([]byte(name), 1000), 0o640))
		must.Do(t, os.Chtimes(in(name), at, at))
	}
	must.Do(t, os.WriteFile(in("sub/empty"), nil, 0o600))
	long := dir
	for range 40 {
		long = filepath.Join(long, strings.Repeat("d", 60))
		must.Do(t, os.Mkdir(long, 0o700))
	}
	must.Do(t, os.WriteFile(filepath.Join(long, "bottom"), []byte("x"), 0o400))
	must.Do(t, os.Link(in("plain"), in("sub/hard")))
	must.Do(t, os.Link(in("plain"), in("sub/dir/hard too")))
	must.Do(t, os.Symlink("/etc/shadow", in("absolute")))
	must.Do(t, os.Symlink("../../..", in("sub/upward")))
	must.Do(t, os.Symlink(strings.Repeat("t", 4000), in("long target")))
	must.Do(t, unix.Mkfifo(in("fifo"), 0o622))
	must.Do(t, os.Chmod(in("fifo"), 0o622))
	must.Do(t, os.Mkdir(in("sticky"), 0o777))
	must.Do(t, unix.Chmod(in("sticky"), 0o1777))
	must.Do(t, unix.Chmod(in("-dash"), 0o6755))
	must.Do(t, os.Mkdir(in("closed"), 0o700))
	must.Do(t, os.WriteFile(in("closed/first"), []byte("1"), 0o600))
	must.Do(t, os.Link(in("closed/first"), in("closed second")))
	must.Do(t, os.Chmod(in("closed/first"), 0))
	must.Do(t, os.Chmod(in("closed"), 0))
	t.Cleanup(func() { _ = os.Chmod(in("closed"), 0o700) })
	for _, name := range []string{"sub", "plain"} {
		for _, attr := range []string{"user.a", "user.eq=ual", "user.per%3Dcent", "user.new\nline"} {
			must.Do(t, unix.Setxattr(in(name), attr, []byte("\x00\n= binary\xff"+attr), 0))
		}
	}
	for name, pieces := range map[string][]extent{
		"hole first": {{1 << 20, 5000}}, "hole last": {{0, 5000}}, "only hole": nil,
		"holes": {{0, 4096}, {1 << 30, 4096}, {90 << 30, 10}},
	} {
		f := must.Get(os.Create(in(name)))(t)
		for _, x := range pieces {
			must.Get(f.WriteAt(bytes.Repeat([]byte{7}, int(x.size)), x.at))(t)
		}
		must.Do(t, errors.Join(f.Truncate(100<<30), f.Close()))
	}
	must.Do(t, os.Chtimes(in("sub"), time.Unix(-5, 500_000_000), time.Unix(-5, 500_000_000)))
	return dir
}

// describe says of each file of a tree all that an archive keeps.
func describe(t *testing.T, root string) map[string]string {
	t.Helper()
	all, first := map[string]string{}, map[uint64]string{}
	must.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil && os.Getuid() != 0 && errors.Is(err, fs.ErrPermission) {
			return nil // a closed directory
		}
		if err != nil || name == "." {
			return err
		}
		all[name] = tell(t, path, name, first)
		return nil
	}))
	return all
}

// tell says of one file all that an archive keeps. first has the names of files with several.
func tell(t *testing.T, path, name string, first map[uint64]string) string {
	t.Helper()
	var st unix.Stat_t
	must.Do(t, unix.Lstat(path, &st))
	says := fmt.Sprintf("mode %o", st.Mode&^(unix.S_ISUID|unix.S_ISGID))
	says += fmt.Sprint(" mtime ", st.Mtim)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target := must.Get(os.Readlink(path))(t)
		says += fmt.Sprintf(" -> %q", target)
	case unix.S_IFREG:
		says += fmt.Sprintf(" size %d blocks %d nlink %d", st.Size, st.Blocks, st.Nlink)
		if st.Nlink > 1 {
			if first[st.Ino] == "" {
				first[st.Ino] = name
			}
			says += " first " + first[st.Ino]
		}
		says += contentOf(t, path, st.Size)
	}
	if k := st.Mode & unix.S_IFMT; k == unix.S_IFREG || k == unix.S_IFDIR {
		says += attributesOf(t, path)
	}
	return says
}

func contentOf(t *testing.T, path string, size int64) string {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return " closed"
	}
	must.Do(t, err)
	defer f.Close()
	pieces := must.First(extents(f, size))(t)
	var says string
	for _, x := range pieces {
		b := make([]byte, x.size)
		must.Get(f.ReadAt(b, x.at))(t)
		says += fmt.Sprintf(" %d %q", x.at, b)
	}
	return says
}

func attributesOf(t *testing.T, path string) (says string) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return " closed"
	}
	must.Do(t, err)
	defer f.Close()
	p := &packer{}
	attrs := must.Get(p.attributes(f, ""))(t)
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		says += fmt.Sprintf(" %q=%q", name, attrs[name])
	}
	return says
}

func same(t *testing.T, want, got map[string]string) {
	t.Helper()
	for name, says := range want {
		expect.True(t, got[name] == says, "%.80q is\n%.300s, want\n%.300s", name, got[name], says)
	}
	for name := range got {
		expect.True(t, want[name] != "", "%.80q is new", name)
	}
}

// TestRoundTrip: what Pack reads, Unpack makes again; all three summaries are equal.
func TestRoundTrip(t *testing.T) {
	if !isOwner(t) {
		return
	}
	from, to := everyKind(t), t.TempDir()
	want := describe(t, from)
	stream, packed := pack(t, from, "")
	same(t, want, describe(t, from)) // and it changed nothing
	checked := must.Get(Check(bytes.NewReader(stream), "", wide))(t)
	unpacked := must.Get(Unpack(openDirectory(t, to), bytes.NewReader(stream), "", wide))(t)
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "closed"), 0o700) })
	expect.True(t, fmt.Sprint(packed) == fmt.Sprint(checked) && fmt.Sprint(packed) == fmt.Sprint(unpacked),
		"packed %+v, checked %+v, unpacked %+v", packed, checked, unpacked)
	same(t, want, describe(t, to))
	expect.True(t, packed.Left == 0 && packed.Entries >= 60 && len(stream) <= 1<<20,
		"%+v in %d bytes", packed, len(stream))
	var st unix.Stat_t
	must.Do(t, unix.Stat(filepath.Join(to, "-dash"), &st))
	expect.True(t, st.Mode&0o7777 == 0o755, "the set-uid file has mode %o", st.Mode)
	must.Do(t, os.Chmod(filepath.Join(to, "closed"), 0o700))
	must.Do(t, os.Chmod(filepath.Join(to, "closed/first"), 0o600))
	b, err := os.ReadFile(filepath.Join(to, "closed/first"))
	expect.True(t, string(b) == "1", "the closed file has %q, %v", b, err)
}

// isOwner is true for a user that owns its files. As root it runs the test again as such a user.
func isOwner(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		return true
	}
	dir := must.Get(os.MkdirTemp("/var/tmp", "chatd-archive-test"))(t)
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	self := must.Get(os.ReadFile("/proc/self/exe"))(t)
	must.Do(t, os.WriteFile(binary, self, 0o755))
	must.Do(t, os.Chmod(dir, 0o755))
	must.Do(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
	const uid = 1_879_000_123
	must.Do(t, os.Chown(filepath.Join(dir, "tmp"), uid, uid))
	cmd := exec.Command(binary, "-test.run", "^"+t.Name()+"$", "-test.v",
		fmt.Sprint("-test.short=", testing.Short()))
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + filepath.Join(dir, "tmp"), "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	must.True(t, err == nil && bytes.Contains(out, []byte("--- PASS: "+t.Name())),
		"as uid %d: %v\n%s", uid, err, out)
	return false
}

// TestTarReads: the archive is one that Go's and the system's tar read.
func TestTarReads(t *testing.T) {
	from := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(from, "a"), 0o750))
	must.Do(t, os.WriteFile(filepath.Join(from, "a/new\nline"), []byte("content"), 0o640))
	must.Do(t, os.Link(filepath.Join(from, "a/new\nline"), filepath.Join(from, "hard")))
	must.Do(t, os.Symlink("a", filepath.Join(from, "soft")))
	f, err := os.Create(filepath.Join(from, "sparse"))
	must.Do(t, err)
	_, err = f.WriteAt([]byte("end"), 1<<20)
	must.Do(t, errors.Join(err, f.Truncate(3<<20), f.Close()))
	stream, _ := pack(t, from, "")
	plain := must.Get(expand(bytes.NewReader(stream), ""))(t)
	text := must.Get(io.ReadAll(plain))(t)
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must.Do(t, err)
		b := must.Get(io.ReadAll(r))(t)
		got[h.Name] = fmt.Sprintf("%c %o %d %s %d", h.Typeflag, h.Mode, h.Size, h.Linkname, len(b))
	}
	if len(got) != 5 || !strings.HasPrefix(got["sparse"], "0 644 3145728  3145728") ||
		!strings.HasPrefix(got["soft"], "2 777 0 a") {
		t.Errorf("Go's tar reads %q", got)
	}
	to := t.TempDir()
	cmd := exec.Command("tar", "-xf", "-", "-C", to)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	must.True(t, err == nil && len(out) == 0, "tar: %v: %s", err, out)
	for _, name := range []string{"a/new\nline", "hard", "sparse"} {
		a, _ := os.ReadFile(filepath.Join(from, name))
		b, err := os.ReadFile(filepath.Join(to, name))
		expect.True(t, bytes.Equal(a, b), "tar made another %q: %v", name, err)
	}
}

// TestLeftOut: a socket is counted and named.
func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	l := must.Get(net.Listen("unix", filepath.Join(dir, "sock\n")))(t)
	defer l.Close()
	_, s := pack(t, dir, "")
	expect.True(t, s.Left == 1 && s.Entries == 0 && strings.Contains(s.LeftNames[0], `"sock\n"`),
		"%+v", s)
}

// TestPathTooLong: a tree with a path that no archive has is refused by that path, and says what to
// do. One with a path that is just short enough is packed.
func TestPathTooLong(t *testing.T) {
	dir, name := t.TempDir(), strings.Repeat("d", maxName)
	bottom := nest(t, dir, maxPath/(maxName+1), name)
	stream, _ := pack(t, dir, "")
	expect.NoError(t, expect.Err(Check(bytes.NewReader(stream), "", wide)))
	must.Do(t, errors.Join(os.Mkdir(inside(bottom, "d"), 0o700), bottom.Close()))
	_, err := Pack(openDirectory(t, dir), io.Discard, "", nil)
	if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), name[:64]) ||
		!strings.Contains(err.Error(), "65536 bytes, in 257 directories: remove or move") {
		t.Errorf("the error is %v", err)
	}
	long := raw(t, chain(maxPath/(maxName+1)+1, name)...)
	expect.Is(t, expect.Err(readTar(bytes.NewReader(long), wide, nothing{})), chat.ErrInvalid,
		"an archive with such a path")
	_, err = Unpack(openDirectory(t, dir), bytes.NewReader(stream), "", wide)
	expect.Is(t, err, chat.ErrExists, "unpacking into a directory that is not empty")
}

// TestEncrypted: only an identity of a recipient reads the archive.
func TestEncrypted(t *testing.T) {
	dir, secret := t.TempDir(), "the content of a file"
	must.Do(t, os.WriteFile(filepath.Join(dir, "f"), []byte(secret), 0o600))
	mine := must.Get(age.GenerateX25519Identity())(t)
	other := must.Get(age.GenerateX25519Identity())(t)
	stream, packed := pack(t, dir, "# mine\n"+mine.Recipient().String()+"\n")
	got, err := Check(bytes.NewReader(stream), mine.String(), wide)
	expect.True(t, err == nil && got.SHA256 == packed.SHA256, "%+v, %v", got, err)
	for _, identity := range []string{"", other.String(), "none"} {
		expect.Is(t, expect.Err(Check(bytes.NewReader(stream), identity, wide)), chat.ErrInvalid,
			"with %.20q", identity)
	}
	for _, cut := range []int{len(stream) - 1, len(stream) / 2, 10} {
		expect.True(t, expect.Err(Check(bytes.NewReader(stream[:cut]), mine.String(), wide)) != nil,
			"its first %d bytes are an archive", cut)
	}
	for _, to := range []string{"age1none", "# only a comment"} {
		expect.Is(t, expect.Err(Pack(openDirectory(t, dir), io.Discard, to, nil)), chat.ErrInvalid,
			"to %q", to)
	}
}

// TestMemoryIsBounded: neither many entries nor much content is held.
func TestMemoryIsBounded(t *testing.T) {
	const size, most = 128 << 20, 64 << 20
	files := 100_000
	if testing.Short() {
		files = 30_000
	}
	r, w := io.Pipe()
	go func() {
		stream, err := compress(w, "")
		if err == nil {
			err = writeMany(newWriter(stream), files, size)
		}
		w.CloseWithError(errors.Join(err, stream.Close()))
	}()
	peak := &peakMemory{Reader: r}
	s := must.Get(Check(peak, "", wide))(t)
	expect.True(t, s.Entries == int64(files)+1 && s.Bytes == size, "%+v", s)
	expect.True(t, peak.most <= most, "%d bytes of heap, want at most %d", peak.most, most)
}

func writeMany(w *writer, files, size int) error {
	for i := range files {
		e := entry{path: fmt.Sprintf("file %d", i), kind: typeFIFO, modified: time.Unix(int64(i), 0)}
		if err := w.add(e, nil); err != nil {
			return err
		}
	}
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer zeros.Close()
	e, n := entry{path: "large", kind: typeFile, size: int64(size)}, int64(size)
	return errors.Join(w.add(e, &content{Reader: io.LimitReader(zeros, n), size: n}), w.end())
}

// peakMemory looks at the heap while it is read from.
type peakMemory struct {
	io.Reader
	reads int
	most  uint64
}

func (p *peakMemory) Read(b []byte) (int, error) {
	if p.reads++; p.reads%64 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		p.most = max(p.most, m.HeapInuse)
	}
	return p.Reader.Read(b)
}
