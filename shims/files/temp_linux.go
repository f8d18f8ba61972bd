package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/filewire"
)

// failpoint is called where a kill or a power cut would do most harm; tests kill the process there.
var failpoint = func(string) {}

// fsync is (*os.File).Sync; a test watches its order.
var fsync = (*os.File).Sync

// temp is a file beside the target, locked while it is written.
type temp struct {
	p    *place
	f    *os.File
	name string
	// over is the target if no name beside it can replace it; locked is its file, if the caller
	// holds its lock.
	over    *place
	locked  *os.File
	mode    uint32 // that the target gets
	created bool   // the target was not there
}

// tempName are the names that belong to the tools: PicoClaw's .tmp-{pid}-{timestamp}.
var tempName = regexp.MustCompile(`^\.tmp-[0-9]{1,10}-[0-9]{19}$`)

func newTempName() string { return fmt.Sprintf(".tmp-%d-%019d", os.Getpid(), time.Now().UnixNano()) }

// createTemp creates the file under an unused name.
func (p *place) createTemp() (*temp, error) {
	for {
		name := newTempName()
		fd, err := openat(p.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return nil, err
		}
		failpoint("temp.made")
		t := &temp{p: p, f: os.NewFile(uintptr(fd), p.dirs+"/"+name), name: name, mode: newMode}
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

// keep locks the new file. It reports false if a sweep holds or has removed the file.
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

// drop closes and removes the file. The name belongs to this temp alone.
func (t *temp) drop() {
	if t.name != "" {
		_ = unix.Unlinkat(t.p.dir, t.name, 0) // sweep takes what stays
	}
	t.f.Close()
}

// unname removes the name, so that closing the file frees it.
func (t *temp) unname() error {
	err := unix.Unlinkat(t.p.dir, t.name, 0)
	t.name = ""
	return err
}

// fill copies body into the file, at most limit bytes of it.
func (t *temp) fill(body io.Reader, limit int64) (int64, error) {
	n, err := filewire.Copy(t.f, io.LimitReader(body, limit+1))
	if err == nil && n > limit {
		err = tooLarge(limit)
	}
	return n, filewire.CutOff(err)
}

func tooLarge(limit int64) error {
	return filewire.Invalid("more than %d bytes", limit)
}

// maxSweep bounds the names that a write looks at.
const maxSweep = 10_000

// sweep removes unlocked temporary files: their writers were killed. It runs after a write, and its
// errors are ignored: the next write tries again.
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
		_ = unix.Unlinkat(dir, name, 0) // the next sweep tries again
	}
}

// sum is the SHA-256 of what is written to it, if it is wanted.
type sum struct{ hash.Hash }

func newSum(wanted bool) sum {
	if !wanted {
		return sum{}
	}
	return sum{sha256.New()}
}

func (s sum) Write(p []byte) (int, error) {
	if s.Hash == nil {
		return len(p), nil
	}
	return s.Hash.Write(p)
}

func (s sum) String() string {
	if s.Hash == nil {
		return ""
	}
	return hex.EncodeToString(s.Sum(nil))
}

// New content is gathered beside the target, whose name it takes when it is whole. That is
// impossible if the target is a mount point, here (a rename over it is EBUSY) or in the session. It is
// then gathered in the workspace, and written over the old.

// mayReplace reports whether a file beside the target may take its name. A file that the rules open
// to programs within a closed or a read-only directory is a mount point in the session, which would
// keep the old one.
func (p *place) mayReplace() (bool, error) {
	there, err := p.mounted()
	if err != nil || there || p.t.opt.Check == nil {
		return !there, err
	}
	beside := path.Join(path.Dir(p.real), newTempName())
	if _, err := p.stat(); err != nil {
		return true, nil // it is not there
	}
	return p.t.opt.Check("bash", beside) == nil && p.t.opt.Check(filewire.Write, beside) == nil, nil
}

// stage creates the file in which new content is gathered: beside the target, or in the workspace.
func (p *place) stage() (*temp, error) {
	beside, err := p.mayReplace()
	if err != nil {
		return nil, err
	}
	if beside {
		return p.createTemp()
	}
	home := p.t.roots[0]
	at := &place{t: p.t, op: p.op, folded: home.real, real: path.Join(home.real, p.name),
		dir: home.fd, dirs: home.real, name: p.name}
	t, err := at.createTemp()
	if err == nil {
		t.over = p
	}
	return t, err
}

// mounted reports whether another mount than its directory's is at the place.
func (p *place) mounted() (bool, error) {
	if len(p.missing) > 0 {
		return false, nil
	}
	there, err := mountOf(p.dir, p.name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	around, errAround := mountOf(p.dir, "")
	return there != around, errors.Join(err, errAround)
}

func mountOf(dir int, name string) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err
}

// target is the place that the content is for.
func (t *temp) target() *place {
	if t.over != nil {
		return t.over
	}
	return t.p
}

// overwrite copies the content into the existing file. It allocates the space first, so that a full
// disk changes nothing. A crash during the copy leaves a mixture.
func (t *temp) overwrite() error {
	f := t.locked
	if f == nil {
		var err error
		if f, _, err = t.over.openLocked(unix.O_WRONLY); err != nil {
			return busy(err)
		}
		defer f.Close()
	}
	st, err := t.f.Stat()
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, max(st.Size(), 1))
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	failpoint("overwrite.begun")
	in := io.NewSectionReader(t.f, 0, st.Size())
	if _, err := filewire.Copy(io.NewOffsetWriter(f, 0), in); err != nil {
		return err
	}
	return errors.Join(f.Truncate(st.Size()), fsync(f))
}

// stat is the content's file, where it is now.
func (t *temp) stat() (st unix.Stat_t, err error) {
	if t.over != nil {
		return t.over.stat()
	}
	err = unix.Fstat(int(t.f.Fd()), &st)
	return st, err
}
