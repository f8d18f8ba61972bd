package homedir

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// MakeMountPoint makes sure, as the chat, that the home has a directory at rel, or with file a
// regular file, to mount on, which no link leads to. Anything else there is the chat's, and is
// renamed to a free name: a chat that cannot wake could not remove it. moved holds the new
// names.
func MakeMountPoint(home int, rel string, file bool) (moved []string, err error) {
	at, err := unix.FcntlInt(uintptr(home), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Close(at)) }()
	names := strings.Split(rel, "/")
	for i, name := range names {
		last := i == len(names)-1
		next, aside, err := stepInto(at, name, last && file)
		if aside != "" {
			moved = append(moved, filepath.Join(filepath.Join(names[:i]...), aside))
		}
		if err != nil {
			return moved, err
		}
		if err := unix.Close(at); err != nil {
			return moved, err
		}
		at = next
	}
	return moved, nil
}

// stepInto opens one component of a mount point's path, and makes it if it is missing.
func stepInto(at int, name string, file bool) (fd int, aside string, err error) {
	for range 2 {
		if fd, err = openPoint(at, name, file); err == nil {
			return fd, aside, nil
		}
		if !errors.Is(err, unix.ENOENT) {
			if aside, err = moveAside(at, name); err != nil {
				return -1, "", err
			}
		}
		if err = makePoint(at, name, file); err != nil {
			return -1, aside, err
		}
	}
	return -1, aside, fmt.Errorf("cannot open %s: %w", chat.Quote(name), err)
}

// openPoint opens a directory that the chat may use, or a regular file.
func openPoint(at int, name string, file bool) (int, error) {
	flags := uint64(unix.O_PATH)
	if !file {
		flags |= unix.O_DIRECTORY
	}
	fd, err := sys.OpenOnMount(at, name, flags)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch kind := st.Mode & unix.S_IFMT; {
	case err == nil && file && kind != unix.S_IFREG:
		err = unix.ENOTDIR
	case err == nil && !file:
		err = unix.Faccessat(fd, ".", unix.R_OK|unix.W_OK|unix.X_OK, 0)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func makePoint(at int, name string, file bool) error {
	if !file {
		return unix.Mkdirat(at, name, 0o700)
	}
	fd, err := unix.Openat(at, name,
		unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// moveAside renames an obstructing entry to a free name, and returns that name.
func moveAside(at int, name string) (string, error) {
	for i := 1; i <= 1000; i++ {
		aside := name + ".chatd-" + strconv.Itoa(i)
		err := unix.Renameat2(at, name, at, aside, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return aside, err
		}
	}
	return "", fmt.Errorf("cannot move %s aside: a thousand of that name are there: %w", chat.Quote(name),
		chat.ErrWrongPhase)
}
