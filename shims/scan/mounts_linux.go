package scan

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// maxMounts bounds the file systems of a walk.
const maxMounts = 256

// localKinds are the file systems on which files of users lie, and which the kernel answers for
// alone. An overlay is walked as the root of the host only: elsewhere its layers are.
const localKinds = " bcachefs btrfs ext2 ext3 ext4 f2fs jfs nilfs2 overlay ramfs reiserfs tmpfs " +
	"xfs zfs "

// passedKinds have no file of a user, and a path may lead through them.
const passedKinds = " devtmpfs proc sysfs "

// pseudoKinds have no file of a user, or such as a reap removes. An overlay is in them because its
// layers are walked.
const pseudoKinds = passedKinds + "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts " +
	"efivarfs fusectl mqueue nsfs overlay pstore rpc_pipefs securityfs selinuxfs tracefs "

var errKind = errors.New("not a local file system, or reached through one that is not")

// chooseMounts are the mounts to walk, sorted by path, and those that may have files of users and
// are not walked. A mount that is reached through a file system of another kind is one of those:
// its name could not be looked up without that.
func chooseMounts(all []sys.Mount, under []string) (chosen, left []sys.Mount) {
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
	for _, m := range all {
		local := is(localKinds, m) && (m.Kind != "overlay" || m.Path == "/")
		switch {
		case len(under) > 0 && !slices.Contains(under, m.Path):
		case local && reached(m):
			chosen = append(chosen, m)
		case len(under) > 0 || local || !is(pseudoKinds, m):
			left = append(left, m)
		}
	}
	slices.SortFunc(chosen, func(a, b sys.Mount) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.ID, b.ID))
	})
	return chosen, left
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
			w.unseen(m.Path, errMany)
			continue
		}
		fd, err := openMount(m)
		if err != nil {
			w.unseen(m.Path, err)
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

// openMount opens the root of a mount; -1 is a mount that another one hides.
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
	var st unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC
	err = unix.Statx(fd, "", flags, unix.STATX_MNT_ID, &st)
	if err != nil || st.Mnt_id != uint64(m.ID) {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
