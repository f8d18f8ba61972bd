package safefs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// ReadPrivate reads a file of at most max bytes that only root can read and write, in directories
// that only root can change. It follows no link to the file, and waits for no writer of a fifo.
func ReadPrivate(file string, max int64) ([]byte, error) {
	const flags = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if !filepath.IsAbs(file) {
		return nil, chat.Invalid("cannot read %s: want an absolute path", chat.Quote(file))
	}
	if err := onlyRootChanges(file[:strings.LastIndex(file, "/")]); err != nil {
		return nil, fmt.Errorf("cannot read a private file: %w", err)
	}
	f, err := os.OpenFile(file, flags, 0)
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("%w: want a file, not a link", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read a private file: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", chat.Quote(file), err)
	}
	var why string
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		why = "want a regular file"
	case st.Uid != 0:
		why = fmt.Sprintf("it belongs to uid %d: want root", st.Uid)
	case st.Mode&0o077 != 0:
		why = fmt.Sprintf("its mode is %04o: want 0600, so that only root can read it",
			st.Mode&0o7777)
	case st.Size > max:
		why = fmt.Sprintf("it has %d bytes: want at most %d", st.Size, max)
	}
	if why != "" {
		return nil, chat.Invalid("cannot use %s: %s", chat.Quote(file), why)
	}
	return io.ReadAll(io.LimitReader(f, max))
}

// maxLinks bounds the links on the way to a file, as the kernel does (path_resolution(7)).
const maxLinks = 40

// onlyRootChanges refuses a directory to which another user can lead elsewhere: each directory on
// the way is looked at, also those of links, and each link's own directory.
func onlyRootChanges(dir string) error {
	at, rest := "/", dir
	links := 0
	for {
		if err := onlyRootWrites(at); err != nil {
			return err
		}
		name, more, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch name {
		case "":
			return nil
		case "..": // at has no link in it
			at, rest = filepath.Dir(at), more
			continue
		}
		to := filepath.Join(at, name)
		link, err := linkOfRoot(to)
		if err != nil {
			return err
		}
		if link == "" {
			at, rest = to, more
			continue
		}
		if links++; links > maxLinks {
			return fmt.Errorf("cannot follow more than %d links to %s: %w", maxLinks,
				chat.Quote(dir), unix.ELOOP)
		}
		if filepath.IsAbs(link) {
			at = "/"
		}
		rest = link + "/" + more
	}
}

// onlyRootWrites refuses a directory in which another user can swap what is root's.
func onlyRootWrites(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", chat.Quote(dir), err)
	}
	sticky := st.Uid == 0 && st.Mode&unix.S_ISVTX != 0 // only root removes what is root's
	if who := sys.WritersOf(st); who != "" && !sticky {
		return chat.Invalid("%s can be changed by others than root: %s may write to it", chat.Quote(dir), who)
	}
	return nil
}

// linkOfRoot is where a link leads to, which must be root's: in a directory with the sticky bit it
// might be another's. It is empty for what is not a link.
func linkOfRoot(name string) (string, error) {
	to, err := os.Readlink(name)
	if errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(name, &st)
	}
	if err == nil && st.Uid != 0 {
		err = chat.Invalid("the link belongs to uid %d: want root", st.Uid)
	}
	if err != nil {
		return "", fmt.Errorf("cannot follow %s: %w", chat.Quote(name), err)
	}
	return to, nil
}
