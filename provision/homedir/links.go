package homedir

import (
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// makeLinkBeneath gives a directory of a home its second name, as the chat. A file of the chat's
// with that name stays.
func makeLinkBeneath(home int, l chat.InstanceLink) error {
	names, err := sys.OpenOnMount(home, path.Dir(l.Name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return unlessItsOwn(err)
	}
	defer unix.Close(names)
	return unlessItsOwn(unix.Symlinkat(l.Target(), names, path.Base(l.Name)))
}

// unlessItsOwn returns err, or nil if the chat caused it by a change of its own home.
func unlessItsOwn(err error) error {
	if anyErrno(err, unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.EXDEV, unix.EACCES, unix.EEXIST,
		unix.ENOTEMPTY, unix.EBUSY, unix.EISDIR) {
		return nil
	}
	return err
}
