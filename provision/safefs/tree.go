package safefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// Remove removes the named trees below a root-owned parent. Their content is the chat's
// and may be hostile. A name that does not exist is not an error.
func Remove(parent string, names ...string) error {
	p, err := unix.Open(parent, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", parent, err)
	}
	defer unix.Close(p)
	var errs []error
	for _, name := range names {
		if err := removeTree(p, name); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove %s: %w", filepath.Join(parent, name), err))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes one tree with three descriptors, however deep it is. A recursion would hold
// one for each level, and a chat can nest directories until the daemon has none left. So a
// directory inside another is first moved up into the top of the tree.
//
// No step follows a link, and none crosses into another file system.
func removeTree(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EROFS) { // the kernel returns it even for a name that does not exist
		var st unix.Stat_t
		if serr := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(serr, unix.ENOENT) {
			return nil
		}
		return err
	}
	top, err := OpenDir(parent, name)
	if err != nil {
		return unlessGone(err)
	}
	defer unix.Close(top)
	r := remover{top: top}
	for {
		left, err := r.pass(top, r.flatten)
		if err != nil {
			return err
		}
		if left == 0 {
			break
		}
	}
	return unlessGone(unix.Unlinkat(parent, name, unix.AT_REMOVEDIR))
}

// unlessGone is the error of a removal, unless another one came first.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

type remover struct {
	top   int
	moved int
}

// OpenDir opens a directory in the directory at; name may be no link and no other file system.
func OpenDir(at int, name string) (int, error) {
	fd, err := sys.OpenOnMount(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, fmt.Errorf("cannot open %s: %w", strconv.QuoteToASCII(name), err)
	}
	return fd, nil
}

// pass reads up to 1,024 names of dir, unlinks the files, calls sub for the directories, and
// returns how many names it read. The bound keeps memory small for a directory of a million
// names.
func (r *remover) pass(dir int, sub func(dir int, name string) error) (seen int, err error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(1024)
	for _, name := range names {
		seen++
		err := unix.Unlinkat(dir, name, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			err = sub(dir, name)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return seen, fmt.Errorf("cannot remove %s: %w", strconv.QuoteToASCII(name), err)
		}
	}
	if len(names) == 0 {
		return 0, nil
	}
	return seen, err
}

// flatten empties and removes the directory name, which is in the top: it unlinks its files and
// moves its directories up beside it.
func (r *remover) flatten(dir int, name string) error {
	fd, err := OpenDir(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		left, err := r.pass(fd, r.moveUp)
		if err != nil {
			return err
		}
		if left == 0 {
			return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
	}
}

// moveUp renames a directory into the top. RENAME_NOREPLACE skips names that the chat has made
// in advance.
func (r *remover) moveUp(dir int, name string) error {
	for {
		r.moved++
		err := unix.Renameat2(dir, name, r.top, ".chatd-"+strconv.Itoa(r.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}
