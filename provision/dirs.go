package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/homedir"
	"github.com/chatd/chatd/provision/hostprobe"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// dirs are the root-owned directories that hold all files of the chats, and make the homes there.
type dirs struct {
	homedir.Dirs
	sessions, runs, commands, logs, shim string
	archive, stage, empty                string
	// probe holds the home of the probes' chat, on a file system that chats cannot fill.
	probe string
	// probeUID is that of the probes' chat.
	probeUID uint32
	userdb   *account.Userdb
	units    bool
}

func newDirs(opt Options) *dirs {
	private := cmp.Or(opt.Private, opt.State)
	d := &dirs{
		Dirs: homedir.Dirs{
			Homes: opt.Homes, Snapshots: filepath.Join(opt.Homes, ".snapshots"),
			Tmp: filepath.Join(private, "tmp"), VarTmp: filepath.Join(private, "vartmp"), HomeMode: 0o700,
		},
		sessions: filepath.Join(opt.Run, "sessions"), runs: filepath.Join(opt.Run, "runs"),
		commands: filepath.Join(opt.State, "profiles"), logs: filepath.Join(opt.State, "logs"),
		archive: filepath.Join(opt.State, "bin", "chatd-archive"),
		shim:    filepath.Join(opt.State, "bin", "chatd-shim"),
		stage:   filepath.Join(opt.Run, "stage"), empty: filepath.Join(opt.State, "empty"),
		probe: filepath.Join(opt.Run, "probe"), probeUID: opt.UIDs.High,
		userdb: &account.Userdb{Dir: opt.Userdb}, units: usesUnits(opt.Backend),
	}
	if slices.Contains(opt.Without, chat.LayerHome) {
		d.HomeMode = 0o755
	}
	return d
}

// tmpMode is the mode of the parents of the private /tmp trees. bubblewrap, which runs as the
// chat, must pass through them. pam_namespace(8) mounts the trees itself and demands mode 0 of
// their parents.
func (d *dirs) tmpMode() os.FileMode {
	if d.units {
		return 0
	}
	return 0o711
}

// peekYounger is checkYounger for doctor, where no daemon holds the state. A state that is held
// or cannot be read is no finding of this kind.
func peekYounger(opt Options) error {
	given, err := state.Peek(opt.State)
	if err != nil {
		return nil
	}
	return newDirs(opt).checkYounger(opt, given)
}

// checkYounger refuses a database that is younger than the host; see [state.CheckGiven].
func (d *dirs) checkYounger(opt Options, given func(uint32) bool) error {
	owners, err := homedir.Owners(d.Trees()...)
	if err != nil {
		return err
	}
	records, err := d.userdb.Recorded()
	if err != nil {
		return err
	}
	maps.Copy(owners, records)
	return state.CheckGiven(opt.State, given, opt.UIDs, owners)
}

// syncRemoved makes the removals durable by an fsync(2) of the parent directories. Otherwise a
// power cut could bring back files of a chat whose record is gone.
func (d *dirs) syncRemoved(context.Context, subject) error {
	var errs []error
	for _, name := range append([]string{d.userdb.Dir, d.logs}, d.Trees()...) {
		dir, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot make the removals in %s durable: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// sessionDirs lists the chats that have a session directory: they have, or had, a session.
func (d *dirs) sessionDirs() ([]chat.ID, error) {
	names, err := os.ReadDir(d.sessions)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", d.sessions, err)
	}
	var ids []chat.ID
	for _, n := range names {
		if id, err := chat.ParseID(n.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// sessionDir is root's directory of the chat's session.
func (d *dirs) sessionDir(id chat.ID, uid uint32) session.Dir {
	return session.Dir{Parent: d.sessions, Chat: id, UID: uid}
}

// probeID is the chat that probes act as. No chat gets its uid, and reconcile clears its remains
// after a crash as a session without a chat.
const probeID = hostprobe.ID
