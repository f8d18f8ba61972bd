package leftovers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chatd/chatd/provision/safefs"
)

// journalDirs hold a directory of each machine and namespace (journald.conf(5), Storage=).
var journalDirs = []string{"/var/log/journal", "/run/log/journal"}

// RemoveJournals removes the journals of the uids, also the archived and the damaged ones
// (systemd-journald.service(8), SplitMode=uid). They belong to root and have the uid in their names
// alone. A journald that has one open makes it anew, empty, when it rotates its files: call it
// again later.
func RemoveJournals(of func(uid uint32) bool) error {
	var errs []error
	for _, top := range journalDirs {
		machines, err := os.ReadDir(top)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot list journals: %w", err))
		}
		for _, m := range machines {
			if m.IsDir() {
				errs = append(errs, removeJournalsIn(filepath.Join(top, m.Name()), of))
			}
		}
	}
	return errors.Join(errs...)
}

func removeJournalsIn(dir string, of func(uid uint32) bool) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list journals: %w", err)
	}
	var errs []error
	for _, f := range files {
		if uid, ok := journalUID(f.Name()); ok && of(uid) {
			errs = append(errs, safefs.Remove(dir, f.Name()))
		}
	}
	return errors.Join(errs...)
}

// journalUID is the uid of user-UID.journal, user-UID@….journal and user-UID@….journal~.
func journalUID(name string) (uint32, bool) {
	name, user := strings.CutPrefix(name, "user-")
	name = strings.TrimSuffix(name, "~")
	name, journal := strings.CutSuffix(name, ".journal")
	number, _, _ := strings.Cut(name, "@")
	uid, err := strconv.ParseUint(number, 10, 32)
	if !user || !journal || err != nil || strconv.FormatUint(uid, 10) != number {
		return 0, false
	}
	return uint32(uid), true
}
