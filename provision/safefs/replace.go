package safefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/internal/sys"
)

// AsideName is the temporary name of a file that is built to become name; no
// chat, account or program has such a name.
func AsideName(name string) string { return ".new-" + name }

// Replace replaces target by the file that create makes, in one step. A reader sees the old or the
// new, and a crash leaves one of them. It first removes a temporary file that an earlier crash
// left.
func Replace(target string, create func(aside string) error) error {
	aside := filepath.Join(filepath.Dir(target), AsideName(filepath.Base(target)))
	if err := os.Remove(aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := create(aside)
	if err == nil {
		err = os.Rename(aside, target)
	}
	if err == nil {
		return nil
	}
	if clean := os.Remove(aside); !errors.Is(clean, os.ErrNotExist) {
		err = errors.Join(err, clean)
	}
	return err
}

// ReplaceFile is replace by a regular file of exactly mode. It is not synced.
func ReplaceFile(target string, content []byte, mode os.FileMode) error {
	return Replace(target, func(aside string) error { return WriteNew(aside, content, mode) })
}

// WriteNew makes a file that must not exist, with exactly mode, whatever the umask.
func WriteNew(name string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

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
