package unshare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// narrow reduces the mount namespace of the calling thread to the mounts of the host that a session
// needs. bubblewrap reads the list of mounts for each mount that it makes: each further mount of
// the host would slow the start.
//
// It changes nothing if the small tree would not show the same as the large one, as for a path
// over a link in a mount that no other path needs.
func (t Trees) narrow() error {
	dir := filepath.Join(t.Dir, "tree")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot make a directory for the mounts of a session: %w", err)
	}
	if err := graft("/", dir); err != nil {
		return err
	}
	for _, m := range t.needed() {
		// No path leads to a mount that another one hides.
		if err := graft(m, dir+m); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if !t.showsSame(dir) {
		return unmountTree(dir)
	}
	return exchangeRoot(dir)
}

// forStart are further paths that a start needs: the cgroups, the socket on which the first process
// of a unit notifies systemd (sd_notify(3)), and what it looks at to see that PAM has mounted the
// chat's own. A snapshot's session sees another /tmp later.
var forStart = []string{"/sys/fs/cgroup", "/run/systemd/notify", "/tmp", "/var/tmp"}

// needed are the mounts of the host on the way to a session's paths, and in them, outer ones first;
// the mounts on the way to forStart; and /proc, because the kernel lets bubblewrap mount a new proc
// only where one is fully visible.
func (t Trees) needed() []string {
	parts := append(slices.Concat(t.Shared, t.Through), "/proc")
	uses := append(slices.Concat(parts, t.Empty, forStart), t.Dir)
	for i, p := range uses {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			uses[i] = real
		}
	}
	var all []string
	for _, m := range t.Mounts {
		isWay := func(p string) bool { return chat.Within(p, m) }
		isPart := func(p string) bool { return chat.Within(m, p) }
		if m != "/" && (slices.ContainsFunc(uses, isWay) || slices.ContainsFunc(parts, isPart)) {
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// graft binds the mount at from to at, without the mounts in it.
func graft(from, at string) error {
	const clone = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, clone)
	if err != nil {
		return fmt.Errorf("cannot open the mount at %s: %w", chat.Quote(from), err)
	}
	defer unix.Close(fd)
	to, err := unix.Openat2(unix.AT_FDCWD, at, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err == nil {
		defer unix.Close(to)
		const opened = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
		err = unix.MoveMount(fd, "", to, "", opened)
	}
	if err != nil {
		return fmt.Errorf("cannot mount %s for a session: %w", chat.Quote(from), err)
	}
	return nil
}

// showsSame reports whether each path of a session is the same file in the tree at dir as on the
// host.
func (t Trees) showsSame(dir string) bool {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(root)
	for _, p := range append(slices.Concat(t.Shared, t.Through, t.Empty, forStart), t.Dir) {
		var there unix.Stat_t
		err := unix.Stat(p, &there)
		here, inErr := statIn(root, p)
		if !errors.Is(inErr, err) || there.Dev != here.Dev || there.Ino != here.Ino {
			return false
		}
	}
	return true
}

// statIn is stat(2) of a path with the directory root as its root.
func statIn(root int, p string) (st unix.Stat_t, err error) {
	fd, err := unix.Openat2(root, p, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}

// exchangeRoot makes the mount at dir the root, and detaches the old root; see pivot_root(2) for
// the dots. A root that cannot be exchanged, as that of an initramfs, stays.
func exchangeRoot(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("cannot enter %s: %w", chat.Quote(dir), err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return errors.Join(unix.Chdir("/"), unmountTree(dir))
	}
	return errors.Join(unmountTree("."), unix.Chdir("/"))
}

// unmountTree detaches a mount with the mounts in it.
func unmountTree(dir string) error {
	if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("cannot detach %s: %w", chat.Quote(dir), err)
	}
	return nil
}
