package enforce

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/masks"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// makeMasks creates and opens the two files that masks are copies of.
func makeMasks(dir string) (masks.Sources, error) {
	if err := orders.MakeMasks(dir); err != nil {
		return nil, err
	}
	return masks.OpenSources(path.Join(dir, orders.ClosedDirectory), path.Join(dir, orders.ClosedFile))
}

// startMasks returns the inodes of the masks that bubblewrap mounts. They lie in [orders.StartMasks],
// which chatd may not have created. It is called outside any session.
func startMasks(dir string) (all []sys.Inode) {
	for _, name := range []string{orders.ClosedDirectory, orders.ClosedFile} {
		var st unix.Statx_t
		name := path.Join(path.Dir(dir), orders.StartMasks, name)
		if unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st) == nil {
			all = append(all, sys.InodeOf(&st))
		}
	}
	return all
}

// isStartMask reports whether a mount of a starting session is one of bubblewrap's masks. No chat
// can mount those files: they belong to root, and a chat has no capability.
func (s *session) isStartMask(root int, l sys.Mount) bool {
	if name := path.Base(l.Root); name != orders.ClosedDirectory && name != orders.ClosedFile {
		return false
	}
	fd, st, err := sys.OpenPath(root, l.Path)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return st.Mnt_id == uint64(l.ID) && slices.Contains(s.startMasks, sys.InodeOf(&st))
}

// adopt describes a mount that is not recorded as a mask. A mask of bubblewrap's stays if it is as
// the enforcer's mask of that place would be. Any other mount goes: one that could not be removed,
// one that an earlier worker did not come to record, and a mask of a path that is open now.
func (s *session) adopt(l sys.Mount, wants []pathclass.Place, exceptions bool) masks.Mount {
	c := masks.Mount{Place: pathclass.Place{Path: l.Path}, ID: uint64(l.ID)}
	if !slices.Contains(s.startMaskIDs, l.ID) {
		return c
	}
	c.Dir = path.Base(l.Root) == orders.ClosedDirectory
	i := slices.IndexFunc(wants, func(w pathclass.Place) bool { return w.Path == l.Path })
	roomy := c.Dir && (exceptions || slices.ContainsFunc(wants, func(w pathclass.Place) bool {
		return w.Path != l.Path && chat.Within(w.Path, l.Path)
	}))
	if i >= 0 && wants[i].Class == filerules.Closed && wants[i].Dir == c.Dir && !roomy {
		c.Place = wants[i]
	}
	return c
}
