package files

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// replace replaces the target by the file. It syncs the content, renames, and then syncs
// the directory, so that a power cut leaves the old file or the new.
func (t *temp) replace() error {
	failpoint("temp.filled")
	if t.over != nil {
		return t.overwrite()
	}
	fd := int(t.f.Fd())
	if err := errors.Join(unix.Fchmod(fd, t.mode), fsync(t.f)); err != nil {
		return err
	}
	failpoint("temp.synced")
	dir, err := openDir(t.p.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err = t.stillThere(fd); err == nil {
		err = t.rename()
	}
	if err != nil {
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

// stillThere verifies that the directory still has the checked name.
func (t *temp) stillThere(fd int) error {
	dir := t.p.dirs
	if dir != "/" {
		dir += "/"
	}
	return busy(checkName(fd, dir+t.name))
}

// rename gives the file the target's name. The target and the file exchange names first, and the
// old target is then checked: only a regular file is replaced. A link, which must have appeared
// after the walk, gets its name back.
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
			if err := t.replacedOne(); !errors.Is(err, errMoved) || !t.ownsName() {
				return busy(err)
			}
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			return t.renameOver()
		case !errors.Is(err, unix.ENOENT):
			return err
		}
	}
	return busy(errMoved)
}

// ownsName reports whether the temporary name is still that of the new file. If both were moved in
// between, it names an unlocked file that a sweep may remove, and must not be exchanged with the
// link again.
func (t *temp) ownsName() bool {
	var mine, there unix.Stat_t
	err := errors.Join(unix.Fstat(int(t.f.Fd()), &mine),
		unix.Fstatat(t.p.dir, t.name, &there, unix.AT_SYMLINK_NOFOLLOW))
	return err == nil && mine.Dev == there.Dev && mine.Ino == there.Ino
}

// replacedOne removes the old target, or gives it its name back.
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

// renameOver is for file systems that cannot exchange (NFS, some FUSE): a link that appears between
// the check and the rename is replaced there.
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

// busy ends a call that cannot be retried, because its content is consumed.
func busy(err error) error {
	if errors.Is(err, errMoved) {
		return fmt.Errorf("%w: %w", err, chat.ErrBusy)
	}
	return err
}
