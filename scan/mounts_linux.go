package scan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// maxMounts bounds the file systems of a walk.
const maxMounts = 256

// localKinds are the file systems on which files of users lie, and which the kernel answers for
// alone. An overlay is walked as the root of the host only: elsewhere its layers are.
const localKinds = " bcachefs btrfs ext2 ext3 ext4 f2fs jfs nilfs2 overlay ramfs reiserfs tmpfs " +
	"xfs zfs "

// passedKinds have no file of a user, and a path may lead through them.
const passedKinds = " devtmpfs proc sysfs "

// localMounts are the mounts to walk, sorted by path. A mount that is reached through a file system
// of another kind is left out: its name could not be looked up without that.
func localMounts(all []sys.Mount, under []string) []sys.Mount {
	byID := map[int]sys.Mount{}
	for _, m := range all {
		byID[m.ID] = m
	}
	is := func(kinds string, m sys.Mount) bool { return strings.Contains(kinds, " "+m.Kind+" ") }
	reached := func(m sys.Mount) bool {
		for range all {
			on, ok := byID[m.Parent]
			if !ok || on.ID == m.ID {
				return true
			}
			if m = on; !is(localKinds+passedKinds, m) {
				return false
			}
		}
		return false // a circle
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m sys.Mount) bool {
		return !is(localKinds, m) || m.Kind == "overlay" && m.Path != "/" || !reached(m) ||
			len(under) > 0 && !slices.Contains(under, m.Path)
	})
	slices.SortFunc(chosen, func(a, b sys.Mount) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.ID, b.ID))
	})
	return chosen
}

// top is an open mount.
type top struct {
	sys.Mount
	fd int
}

// openMounts opens the mounts. It leaves out those that another hides, and those of which another
// shows the same files.
func (w *walk) openMounts(mounts []sys.Mount) (tops []top) {
	var open []top
	for _, m := range mounts {
		if len(open) == maxMounts {
			w.leaveOut(m.Path, errMany)
			break
		}
		fd, err := openMount(m)
		if err != nil {
			w.leaveOut(m.Path, err)
		} else if fd >= 0 {
			open = append(open, top{m, fd})
		}
	}
	for i, t := range open {
		shown := slices.IndexFunc(open, func(o top) bool {
			return o.Dev == t.Dev && contains(o.Root, t.Root)
		})
		twin := shown >= 0 && shown != i && (open[shown].Root != t.Root || shown < i)
		if twin {
			_ = unix.Close(t.fd)
			continue
		}
		tops = append(tops, t)
	}
	return tops
}

// contains reports whether the directory at path is dir or in it.
func contains(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// openMount opens the root of a mount for reading; -1 is a mount that another one hides.
func openMount(m sys.Mount) (int, error) {
	fd, err := sys.Openat2(unix.AT_FDCWD, m.Path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return -1, nil // unmounted meanwhile, hidden, or a file
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC
	if err := unix.Statx(fd, "", flags, unix.STATX_MNT_ID, &st); err != nil {
		return -1, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return -1, fmt.Errorf("cannot tell mounts apart: the kernel is older than 5.8")
	}
	if st.Mnt_id != uint64(m.ID) {
		return -1, nil
	}
	return openBelow(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
}

// openBelow opens a name of a directory. It follows no link, and stays in the directory and on its
// mount.
func openBelow(dir int, name string, flags uint64) (int, error) {
	return sys.Openat2(dir, name, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}
