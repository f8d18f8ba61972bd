package trees

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

// ReadPrivate reads a file of at most max bytes that only root can read and write, in directories
// that only root can change. It follows no link to the file, and waits for no writer of a fifo.
func ReadPrivate(file string, max int64) ([]byte, error) {
	const flags = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if err := onlyRootChanges(filepath.Dir(filepath.Clean(file))); err != nil {
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
		return nil, fmt.Errorf("cannot use %s: %s: %w", chat.Quote(file), why, chat.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(f, max))
}

// onlyRootChanges refuses a directory that another user can change, or swap for another one.
func onlyRootChanges(dir string) error {
	for {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return fmt.Errorf("cannot look at %s: %w", chat.Quote(dir), err)
		}
		sticky := st.Uid == 0 && st.Mode&unix.S_ISVTX != 0 // only root removes what is root's
		if who := sys.WritersOf(st); who != "" && !sticky {
			return fmt.Errorf("%s can be changed by others than root: %s may write to it: %w",
				chat.Quote(dir), who, chat.ErrInvalid)
		}
		if dir == "/" {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}
