package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// failpoint is called where a kill or a power cut would come at the worst time;
// tests die there.
var failpoint = func(string) {}

// fsync is (*os.File).Sync; a test watches its order.
var fsync = (*os.File).Sync

// temp is a file beside the target, locked for as long as somebody writes it.
type temp struct {
	p    *place
	f    *os.File
	name string
}

// tempName are the names that belong to the tools: PicoClaw's .tmp-{pid}-{timestamp}.
var tempName = regexp.MustCompile(`^\.tmp-[0-9]{1,10}-[0-9]{19}$`)

// createTemp makes the file, with a name that nobody has.
func (p *place) createTemp() (*temp, error) {
	for {
		name := fmt.Sprintf(".tmp-%d-%019d", os.Getpid(), time.Now().UnixNano())
		fd, err := openat(p.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return nil, err
		}
		failpoint("temp.made")
		t := &temp{p: p, f: os.NewFile(uintptr(fd), p.dirs+"/"+name), name: name}
		kept, err := t.keep()
		if kept && err == nil {
			return t, nil
		}
		t.drop()
		if err != nil {
			return nil, err
		}
	}
}

// keep locks the new file. A sweep that came between has taken it away.
func (t *temp) keep() (bool, error) {
	fd := int(t.f.Fd())
	err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	return st.Nlink > 0, err
}

// drop closes the file and takes it away. The name is this temp's alone.
func (t *temp) drop() {
	if t.name != "" {
		unix.Unlinkat(t.p.dir, t.name, 0)
	}
	t.f.Close()
}

// unname takes the name away at once: nothing stays of the file when it is closed.
func (t *temp) unname() error {
	err := unix.Unlinkat(t.p.dir, t.name, 0)
	t.name = ""
	return err
}

// fill copies body into the file, at most limit bytes of it.
func (t *temp) fill(body io.Reader, limit int64) (int64, error) {
	n, err := io.CopyBuffer(onlyWriter{t.f}, onlyReader{io.LimitReader(body, limit+1)}, make([]byte, bufferSize))
	if err == nil && n > limit {
		err = tooLarge(limit)
	}
	return n, cutOff(err)
}

func tooLarge(limit int64) error {
	return invalid("more than %s bytes", strconv.FormatInt(limit, 10))
}

// onlyReader hides WriteTo, which would choose another buffer.
type onlyReader struct{ io.Reader }

// replace puts the file in the place of the target, with mode. The order is what
// makes it old or new after a power cut: content, then name, then directory.
func (t *temp) replace(mode uint32) error {
	failpoint("temp.filled")
	fd := int(t.f.Fd())
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	if err := fsync(t.f); err != nil {
		return err
	}
	failpoint("temp.synced")
	dir, err := openDir(t.p.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := t.stillThere(fd); err != nil {
		return err
	}
	if err := t.rename(); err != nil {
		return err
	}
	failpoint("renamed")
	if err := fsync(dir); err != nil {
		return err
	}
	failpoint("dir.synced")
	sweep(dir)
	return nil
}

// stillThere wants the directory to have the name that was judged.
func (t *temp) stillThere(fd int) error {
	dir := t.p.dirs
	if dir != "/" {
		dir += "/"
	}
	return busy(checkName(fd, dir+t.name))
}

// rename gives the file the target's name. What had it changes places with the
// file first and is looked at then: only a regular file is replaced. A link, which
// must have come after the walk, gets its name back.
func (t *temp) rename() error {
	dir, name := t.p.dir, t.p.name
	for range tries {
		err := unix.Renameat2(dir, t.name, dir, name, unix.RENAME_NOREPLACE)
		if err == nil {
			t.name = ""
			return nil
		}
		if errors.Is(err, unix.EEXIST) {
			err = unix.Renameat2(dir, t.name, dir, name, unix.RENAME_EXCHANGE)
		}
		switch {
		case err == nil:
			failpoint("exchanged")
			if err := t.replacedOne(); !errors.Is(err, errMoved) {
				return err
			}
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			return t.renameOver()
		case !errors.Is(err, unix.ENOENT):
			return err
		}
	}
	return busy(errMoved)
}

// replacedOne takes away what the target was, or gives it its name back.
func (t *temp) replacedOne() error {
	dir := t.p.dir
	var st unix.Stat_t
	err := unix.Fstatat(dir, t.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		t.name = "" // a sweep was faster
		return nil
	}
	if err == nil {
		err = checkRegular(st.Mode)
	}
	if err == nil {
		if err = unix.Unlinkat(dir, t.name, 0); err == nil || errors.Is(err, unix.ENOENT) {
			t.name = ""
			return nil
		}
	}
	return errors.Join(err, unix.Renameat2(dir, t.name, dir, t.p.name, unix.RENAME_EXCHANGE))
}

// renameOver is for file systems that cannot exchange (NFS, some FUSE): a link
// that comes between the look and the rename is replaced there.
func (t *temp) renameOver() error {
	st, err := t.p.stat()
	if err == nil {
		err = checkRegular(st.Mode)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return busy(err)
	}
	if err = unix.Renameat(t.p.dir, t.name, t.p.dir, t.p.name); err == nil {
		t.name = ""
	}
	return err
}

// busy ends a call that cannot begin again, because its content is spent.
func busy(err error) error {
	if errors.Is(err, errMoved) {
		return fmt.Errorf("%w: %w", err, chat.ErrBusy)
	}
	return err
}

// maxSweep bounds the names that a write looks at.
const maxSweep = 10_000

// sweep takes away temporary files that nobody has locked: their writers were
// killed. It is done after a write, which it must not make fail; what it leaves
// the next write finds.
func sweep(dir *os.File) {
	for seen := 0; seen < maxSweep; {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if tempName.MatchString(name) {
				sweepOne(int(dir.Fd()), name)
			}
		}
		seen += len(names)
		if err != nil || len(names) == 0 {
			return
		}
	}
}

func sweepOne(dir int, name string) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || checkRegular(st.Mode) != nil || int(st.Uid) != os.Geteuid() {
		return
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		unix.Unlinkat(dir, name, 0)
	}
}

// sum is the SHA-256 of what passes, if wanted.
type sum struct {
	r io.Reader
	h interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func summed(r io.Reader, wanted bool) *sum {
	if !wanted {
		return &sum{r: r}
	}
	return &sum{r: r, h: sha256.New()}
}

func (s *sum) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.h != nil {
		s.h.Write(p[:n])
	}
	return n, err
}

func (s *sum) String() string {
	if s.h == nil {
		return ""
	}
	return hex.EncodeToString(s.h.Sum(nil))
}
