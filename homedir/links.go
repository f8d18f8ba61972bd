package homedir

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// makeLinkBeneath gives a directory of a home its second name, as the chat. If an older chatd made
// a directory of that name, it replaces the first one if that is empty; if both have files, both
// stay. Other files of the chat's under that name stay.
func makeLinkBeneath(home int, l chat.InstanceLink) error {
	return beneathBoth(home, path.Dir(l.Name), path.Dir(l.Dir), func(names, dirs int) error {
		name, dir := path.Base(l.Name), path.Base(l.Dir)
		err := unix.Symlinkat(l.Target(), names, name)
		if !errors.Is(err, unix.EEXIST) || !isRealDir(names, name) {
			return unlessItsOwn(err)
		}
		if err := unix.Unlinkat(names, name, unix.AT_REMOVEDIR); anyErrno(err, unix.ENOTEMPTY, unix.EEXIST) {
			// rename(2) replaces an empty directory, and no other.
			if err := unix.Renameat(names, name, dirs, dir); err != nil {
				return unlessItsOwn(err)
			}
		} else if err != nil {
			return unlessItsOwn(err)
		}
		return unlessItsOwn(unix.Symlinkat(l.Target(), names, name))
	})
}

// beneathBoth opens two directories of a home, and does nothing where one is not there, or
// is something else by now.
func beneathBoth(home int, one, other string, act func(one, other int) error) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath}
	a, err := unix.Openat2(home, one, &how)
	if err != nil {
		return unlessItsOwn(err)
	}
	defer unix.Close(a)
	b, err := unix.Openat2(home, other, &how)
	if err != nil {
		return unlessItsOwn(err)
	}
	defer unix.Close(b)
	return act(a, b)
}

func isRealDir(at int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// unlessItsOwn returns err, or nil if the chat caused it by a change of its own home.
func unlessItsOwn(err error) error {
	if anyErrno(err, unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.EXDEV, unix.EACCES, unix.EEXIST, unix.ENOTEMPTY, unix.EBUSY, unix.EISDIR) {
		return nil
	}
	return err
}
