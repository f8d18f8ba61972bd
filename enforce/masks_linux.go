package enforce

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// maskPair are an empty directory and an empty file of root without a mode, in the enforcer's
// directory.
type maskPair struct{ dir, file int }

func (p maskPair) of(dir bool) int {
	if dir {
		return p.dir
	}
	return p.file
}

// MakeMasks creates [ClosedDirectory] and [ClosedFile], an empty directory and an empty file
// without a mode, in a directory of root.
func MakeMasks(dir string) error {
	d, f := path.Join(dir, ClosedDirectory), path.Join(dir, ClosedFile)
	if err := os.Mkdir(d, 0); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot make a mask: %w", err)
	}
	file, err := os.OpenFile(f, os.O_CREATE|os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot make a mask: %w", err)
	}
	if err := errors.Join(file.Close(), os.Chmod(d, 0), os.Chmod(f, 0)); err != nil {
		return fmt.Errorf("cannot make a mask: %w", err)
	}
	return nil
}

// makeMasks creates and opens the two files that masks are copies of.
func makeMasks(dir string) (p maskPair, err error) {
	if err := MakeMasks(dir); err != nil {
		return p, err
	}
	if p.dir, err = unix.Open(path.Join(dir, ClosedDirectory), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		p.file, err = unix.Open(path.Join(dir, ClosedFile), unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return p, fmt.Errorf("cannot open a mask: %w", err)
	}
	return p, nil
}

// startMasks returns the inodes of the masks that bubblewrap mounts. They lie in [StartMasks],
// which chatd may not have created. It is called outside any session.
func startMasks(dir string) (all []inode) {
	for _, name := range []string{ClosedDirectory, ClosedFile} {
		var st unix.Statx_t
		name := path.Join(path.Dir(dir), StartMasks, name)
		if unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st) == nil {
			all = append(all, inodeOf(&st))
		}
	}
	return all
}

// isStartMask reports whether a mount of a starting session is one of bubblewrap's masks. No chat
// can mount those files: they belong to root, and a chat has no capability.
func (s *session) isStartMask(root int, l sys.Mount) bool {
	if name := path.Base(l.Root); name != ClosedDirectory && name != ClosedFile {
		return false
	}
	fd, err := openBeneath(root, strings.TrimPrefix(l.Path, "/"), unix.O_PATH)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	st, err := statFD(fd)
	return err == nil && st.Mnt_id == uint64(l.ID) && slices.Contains(s.startMasks, inodeOf(&st))
}

// adopt is a mount that nobody has noted as a cover. A mask of bubblewrap's is the cover of
// its place if it is as the cover would be: then it stays. Any other goes: what could not be
// taken away, what an earlier worker did not come to note, and a mask of what is open now.
func (s *session) adopt(l sys.Mount, wants []want, exceptions bool) maskMount {
	c := maskMount{want{path: l.Path}, uint64(l.ID)}
	if !slices.Contains(s.startMaskIDs, l.ID) {
		return c
	}
	c.dir = path.Base(l.Root) == ClosedDirectory
	i := slices.IndexFunc(wants, func(w want) bool { return w.path == l.Path })
	roomy := c.dir && (exceptions || slices.ContainsFunc(wants, func(w want) bool { return w.path != l.Path && under(w.path, l.Path) }))
	if i >= 0 && wants[i].class == wallClosed && wants[i].dir == c.dir && !roomy {
		c.want = wants[i]
	}
	return c
}
