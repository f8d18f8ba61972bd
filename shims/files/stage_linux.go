package files

import (
	"errors"
	"io"
	"path"

	"github.com/chatd/chatd/internal/filewire"

	"golang.org/x/sys/unix"
)

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
