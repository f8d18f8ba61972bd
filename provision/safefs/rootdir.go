package safefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/internal/sys"
)

// MakeRoot makes dir, owned by root, with exactly mode. It refuses a link, and a directory of
// another owner, who could replace everything in it.
//
// A missing parent is made with mode 0755: the daemon's umask would close it to the chats that
// have to pass.
func MakeRoot(dir string, mode os.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := MakeRoot(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		err = os.Mkdir(dir, mode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make %s: %w", dir, err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", dir, err)
	}
	if uid, _ := sys.OwnerOf(fi); !fi.IsDir() || uid != 0 {
		return fmt.Errorf("cannot use %s: want a directory that root owns, found %s of uid %d", dir,
			fi.Mode(), uid)
	}
	if fi.Mode().Perm() == mode {
		return nil
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", dir, err)
	}
	return nil
}
