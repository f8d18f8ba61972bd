package homedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// MakeOwned makes the directory name below the root-owned parent, owned by uid, with exactly
// mode, and with the content of skeleton unless that is "". Of a directory that exists it
// corrects only owner and mode.
func MakeOwned(parent, name string, uid uint32, mode os.FileMode, skeleton string) error {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", parent, err)
	}
	defer root.Close()
	if fi, err := root.Lstat(name); err == nil && fi.IsDir() {
		return own(root, name, uid, mode)
	}
	aside := safefs.AsideName(name)
	if err := safefs.Remove(parent, aside); err != nil {
		return err
	}
	if err := root.Mkdir(aside, 0o700); err != nil {
		return fmt.Errorf("cannot make %s in %s: %w", aside, parent, err)
	}
	if skeleton != "" {
		if err := copySkeleton(skeleton, root, aside, uid); err != nil {
			return err
		}
	}
	if err := own(root, aside, uid, mode); err != nil {
		return err
	}
	if err := root.Rename(aside, name); err != nil {
		return fmt.Errorf("cannot put %s in place: %w", filepath.Join(parent, name), err)
	}
	return nil
}

// RemoveOwned removes what [MakeOwned] made, or began to make.
func RemoveOwned(parent, name string) error {
	return safefs.Remove(parent, name, safefs.AsideName(name))
}

// own sets owner and mode through a descriptor, which a rename or a link cannot redirect.
func own(root *os.Root, name string, uid uint32, mode os.FileMode) error {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", filepath.Join(root.Name(), name), err)
	}
	defer f.Close()
	// Owner first: a chown clears no bit that the mode then sets.
	if err := errors.Join(f.Chown(int(uid), int(uid)), f.Chmod(mode)); err != nil {
		return fmt.Errorf("cannot give %s to uid %d: %w", filepath.Join(root.Name(), name), uid, err)
	}
	return nil
}

// DriftOwned describes how the directory differs from the result of [MakeOwned], or returns "". A
// file that is no directory is an error: it cannot be mended.
func DriftOwned(parent, name string, uid uint32, mode os.FileMode) (string, error) {
	path := filepath.Join(parent, name)
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return path + " is gone", nil
	case err != nil:
		return "", fmt.Errorf("cannot look at %s: %w", path, err)
	case !fi.IsDir():
		return "", fmt.Errorf("cannot mend %s: it is a %s, not a directory", path, fi.Mode().Type())
	}
	u, g := sys.OwnerOf(fi)
	if u != uid || g != uid || fi.Mode().Perm() != mode {
		return fmt.Sprintf("%s is %s of %d:%d, want %s of %d:%d", path, fi.Mode(), u, g, mode|os.ModeDir,
			uid, uid), nil
	}
	return "", nil
}

// copySkeleton copies directories, regular files and links from the operator's skeleton into
// the new home. The home is still root's, below a root-owned parent: no chat can swap a name
// meanwhile.
func copySkeleton(skeleton string, root *os.Root, dir string, uid uint32) error {
	err := filepath.WalkDir(skeleton, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(skeleton, path)
		if err != nil || rel == "." {
			return err
		}
		return copyEntry(path, d, root, filepath.Join(dir, rel), uid)
	})
	if err != nil {
		return fmt.Errorf("cannot copy the skeleton %s: %w", skeleton, err)
	}
	return nil
}

func copyEntry(path string, d fs.DirEntry, root *os.Root, target string, uid uint32) error {
	fi, err := d.Info()
	if err != nil {
		return err
	}
	switch {
	case d.IsDir():
		err = root.Mkdir(target, 0o700)
	case fi.Mode().Type() == fs.ModeSymlink:
		var link string
		if link, err = os.Readlink(path); err == nil {
			err = root.Symlink(link, target)
		}
	case fi.Mode().IsRegular():
		err = copyFile(path, root, target)
	default:
		return fmt.Errorf("cannot copy %s: a %s does not belong into a home", path, fi.Mode().Type())
	}
	if err != nil {
		return err
	}
	if err := root.Lchown(target, int(uid), int(uid)); err != nil {
		return err
	}
	if fi.Mode().Type() == fs.ModeSymlink {
		return nil
	}
	// Chmod follows chown. Perm drops set-id bits, which chatd must not give to a chat's file.
	return root.Chmod(target, fi.Mode().Perm())
}

func copyFile(path string, root *os.Root, target string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Sync() // an existing home is never filled: its content is durable before its name
	}
	return errors.Join(err, out.Close())
}
