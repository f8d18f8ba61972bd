package homedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/state"
)

// Dirs are the root-owned directories that hold the trees of chats.
type Dirs struct {
	Homes, Snapshots, Tmp, VarTmp string
	// HomeMode is 0700: only the chat and root may pass. Tests alone set another.
	HomeMode os.FileMode
}

// Trees are the directories with a tree of each chat, which the chat owns.
func (d *Dirs) Trees() []string { return []string{d.Homes, d.Snapshots, d.Tmp, d.VarTmp} }

// Home is the path of the chat's home, which is the same on the host and in the session.
func (d *Dirs) Home(id chat.ID) string { return filepath.Join(d.Homes, string(id)) }

// CreateHome builds the home under a name that no chat has, and renames it into place once it is
// complete. A crash leaves a whole home or none. It neither replaces nor fills a home that exists. An
// unarchived home gets what the archive has, and nothing else.
func (d *Dirs) CreateHome(rec state.Record, skeleton string) error {
	if rec.Unarchives != "" {
		skeleton = ""
	}
	err := MakeOwned(d.Homes, string(rec.ID), rec.UID, d.HomeMode, skeleton)
	if err != nil || rec.Unarchives != "" {
		return err
	}
	return d.MakeInstanceDirs(rec)
}

// MakeInstanceDirs makes what every home has, where it is missing.
func (d *Dirs) MakeInstanceDirs(rec state.Record) error {
	return MakeInstanceDirs(d.Homes, string(rec.ID), rec.UID)
}

// DriftHome says how the home differs from what CreateHome left.
func (d *Dirs) DriftHome(rec state.Record) (string, error) {
	return DriftOwned(d.Homes, string(rec.ID), rec.UID, d.HomeMode)
}

// RemoveHome removes the home, and its clone if there is one.
func (d *Dirs) RemoveHome(rec state.Record) error {
	return errors.Join(RemoveOwned(d.Homes, string(rec.ID)), d.RemoveClone(rec.ID))
}

// RemoveClone removes the clone of a home.
func (d *Dirs) RemoveClone(id chat.ID) error { return RemoveOwned(d.Snapshots, string(id)) }

// CreateTmp makes the directories that the session sees as /tmp and /var/tmp. Their names are
// those that pam_namespace(8) gives a user's instances.
func (d *Dirs) CreateTmp(rec state.Record) error {
	err := MakeOwned(d.Tmp, rec.ID.User(), rec.UID, 0o700, "")
	return errors.Join(err, MakeOwned(d.VarTmp, rec.ID.User(), rec.UID, 0o700, ""))
}

// DriftTmp says how they differ from what CreateTmp left.
func (d *Dirs) DriftTmp(rec state.Record) (string, error) {
	why, err := DriftOwned(d.Tmp, rec.ID.User(), rec.UID, 0o700)
	if err != nil || why != "" {
		return why, err
	}
	return DriftOwned(d.VarTmp, rec.ID.User(), rec.UID, 0o700)
}

// RemoveTmp removes both.
func (d *Dirs) RemoveTmp(rec state.Record) error {
	return errors.Join(RemoveOwned(d.Tmp, rec.ID.User()), RemoveOwned(d.VarTmp, rec.ID.User()))
}

// Strays are the trees that belong to no chat. They are not removed: after a loss of the state
// directory they may be the only copy of somebody's work.
func (d *Dirs) Strays(has func(chat.ID) bool) (strays []string, err error) {
	for _, dir := range d.Trees() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("cannot list %s: %w", dir, err)
		}
		for _, e := range entries {
			name := strings.TrimPrefix(e.Name(), safefs.AsideName(""))
			if dir == d.Tmp || dir == d.VarTmp {
				name = strings.TrimPrefix(name, chat.UserPrefix)
			}
			if name != filepath.Base(d.Snapshots) && !has(chat.ID(name)) {
				strays = append(strays, filepath.Join(dir, e.Name()))
			}
		}
	}
	return strays, nil
}

// Owners returns the owners of the entries of dirs, which need not exist, with one path of each.
// It leaves out the home of a [Try].
func Owners(dirs ...string) (map[uint32]string, error) {
	owners := map[uint32]string{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot list %s: %w", dir, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			fi, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) || e.Name() == triedName {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cannot look at %s: %w", path, err)
			}
			uid, _ := sys.OwnerOf(fi)
			owners[uid] = path
		}
	}
	return owners, nil
}
