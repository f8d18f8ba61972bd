package leftovers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// subordinateFiles give users subordinate uids and gids (subuid(5)).
var subordinateFiles = []string{"/etc/subuid", "/etc/subgid"}

// lockTimeout bounds how long the lock of another tool is waited for.
const lockTimeout = 15 * time.Second

// RemoveSubordinate removes the subordinate ids of a user, by name or by uid. chatd gives its
// accounts none; another tool may have, and userdel(8) knows only names of /etc/passwd. The error
// is EROFS where chatd may not write to /etc.
func RemoveSubordinate(user string, uid uint32) error {
	var errs []error
	for _, file := range subordinateFiles {
		errs = append(errs, removeLines(file, user, strconv.FormatUint(uint64(uid), 10)))
	}
	return errors.Join(errs...)
}

// removeLines removes the lines of the owners from a file with the lock that the tools of shadow
// take: FILE.lock.
func removeLines(file string, owners ...string) error {
	if _, any, err := withoutLines(file, owners); err != nil || !any {
		return err
	}
	unlock, err := lockFile(file)
	if err != nil {
		return fmt.Errorf("cannot remove a line from %s: %w", file, err)
	}
	defer unlock()
	rest, _, err := withoutLines(file, owners)
	if err != nil {
		return err
	}
	if err := replaceAsIs(file, rest); err != nil {
		return fmt.Errorf("cannot remove a line from %s: %w", file, err)
	}
	return nil
}

// withoutLines is the text of a file without the lines of the owners; any: there are some.
func withoutLines(file string, owners []string) (rest string, any bool, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("cannot look for subordinate ids: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		owner, _, _ := strings.Cut(line, ":")
		if slices.Contains(owners, owner) {
			any = true
			continue
		}
		rest += line
	}
	return rest, any, nil
}

// lockFile takes the lock of a file as lckpwdf(3)'s companions do: a link of a file that names the
// process that has it. One of a process that is gone is theirs to remove.
func lockFile(file string) (unlock func(), err error) {
	own := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(own, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(own) }()
	for end := time.Now().Add(lockTimeout); ; time.Sleep(50 * time.Millisecond) {
		err := os.Link(own, file+".lock")
		if err == nil {
			return func() { _ = os.Remove(file + ".lock") }, nil
		}
		if !errors.Is(err, os.ErrExist) || time.Now().After(end) {
			return nil, err
		}
	}
}

// replaceAsIs replaces a file by one of the same owner and mode.
func replaceAsIs(file, text string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chown(int(st.Uid), int(st.Gid)), f.Chmod(os.FileMode(st.Mode&0o777)),
		f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
