package unshare

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// MaxTerminals is how many pseudoterminals a session may have open.
const MaxTerminals = 64

// BoundTerminals bounds the devpts of the session of p. The kernel resets every option that is
// not named here to its default, so the list has all options with which bubblewrap mounts it.
func BoundTerminals(p *sys.ProcessHandle) error {
	err := reconfigure(p, "/dev/pts", unix.DEVPTS_SUPER_MAGIC,
		[][2]string{{"mode", "620"}, {"ptmxmode", "666"}, {"max", strconv.Itoa(MaxTerminals)}})
	if err != nil {
		return fmt.Errorf("cannot bound the terminals of process %d: %w", p.PID, err)
	}
	return nil
}

// Refresh makes the session's overlays drop unused cached names. mounts are paths of the
// session at which overlays are mounted, one of each.
func Refresh(p *sys.ProcessHandle, mounts []string) error {
	var errs []error
	for _, m := range mounts {
		if err := reconfigure(p, m, unix.OVERLAYFS_SUPER_MAGIC, [][2]string{{"ro", ""}}); err != nil {
			errs = append(errs,
				fmt.Errorf("cannot refresh %s in the session of process %d: %w", m, p.PID, err))
		}
	}
	return errors.Join(errs...)
}

// reconfigure remounts the file system at a path of the session, which must be of that
// kind. A remount drops unused cached names, whatever the options. The chat may own the way to
// the path, so reconfigure follows no link, and checks the opened file.
func reconfigure(p *sys.ProcessHandle, at string, kind int64, options [][2]string) error {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", p.PID),
		unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if !p.Alive() {
		return unix.ESRCH
	}
	fd, err := sys.OpenBeneath(root, strings.TrimPrefix(at, "/"), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	if int64(st.Type) != kind {
		return fmt.Errorf("it is of kind %x, want %x", st.Type, kind)
	}
	return remount(fd, options)
}

func remount(fd int, options [][2]string) error {
	fs, err := unix.Fspick(fd, "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for _, o := range options {
		if o[1] == "" {
			err = unix.FsconfigSetFlag(fs, o[0])
		} else {
			err = unix.FsconfigSetString(fs, o[0], o[1])
		}
		if err != nil {
			return fmt.Errorf("option %s: %w", o[0], err)
		}
	}
	return unix.FsconfigReconfigure(fs)
}
