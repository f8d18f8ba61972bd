package provision

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/homedir"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/state"
)

// home is the path of the chat's home, which is the same on the host and in the session.
func (m *Manager) home(id chat.ID) string { return filepath.Join(m.paths.homes, string(id)) }

// tmpMode is the mode of the parents of the private /tmp trees. bubblewrap, which runs as the
// chat, must pass through them. pam_namespace(8) mounts the trees itself and demands mode 0 of
// their parents.
func (m *Manager) tmpMode() os.FileMode {
	if m.units {
		return 0
	}
	return 0o711
}

// homeMode is 0700: only the chat and root may pass.
func (m *Manager) homeMode() os.FileMode {
	if m.without(chat.LayerHome) {
		return 0o755
	}
	return 0o700
}

// createHome builds the home under a name that no chat has, and renames it into place once it is
// complete. A crash leaves a whole home or none. It neither replaces nor fills a home that exists.
func (m *Manager) createHome(_ context.Context, rec state.Record) error {
	if rec.Unarchives != "" { // the archive has all that is in it
		return homedir.MakeOwned(m.paths.homes, string(rec.ID), rec.UID, m.homeMode(), "")
	}
	skeleton := m.opt.Profiles[rec.Profile].Skeleton
	if err := homedir.MakeOwned(m.paths.homes, string(rec.ID), rec.UID, m.homeMode(), skeleton); err != nil {
		return err
	}
	return m.makeInstanceDirs(rec)
}

// makeInstanceDirs makes what every home has, where it is missing.
func (m *Manager) makeInstanceDirs(rec state.Record) error {
	return homedir.MakeInstanceDirs(m.paths.homes, string(rec.ID), rec.UID)
}

func (m *Manager) driftHome(_ context.Context, rec state.Record) (string, error) {
	return homedir.DriftOwned(m.paths.homes, string(rec.ID), rec.UID, m.homeMode())
}

// removeHome removes the home, and its clone if there is one.
func (m *Manager) removeHome(_ context.Context, rec state.Record) error {
	err := safefs.Remove(m.paths.homes, string(rec.ID), safefs.AsideName(string(rec.ID)))
	return errors.Join(err, m.removeClone(rec.ID))
}

// createTmp makes the directories that the session sees as /tmp and /var/tmp. Their names are
// those that pam_namespace(8) gives a user's instances.
func (m *Manager) createTmp(_ context.Context, rec state.Record) error {
	err := homedir.MakeOwned(m.paths.tmp, rec.ID.User(), rec.UID, 0o700, "")
	return errors.Join(err, homedir.MakeOwned(m.paths.varTmp, rec.ID.User(), rec.UID, 0o700, ""))
}

func (m *Manager) driftTmp(_ context.Context, rec state.Record) (string, error) {
	why, err := homedir.DriftOwned(m.paths.tmp, rec.ID.User(), rec.UID, 0o700)
	if err != nil || why != "" {
		return why, err
	}
	return homedir.DriftOwned(m.paths.varTmp, rec.ID.User(), rec.UID, 0o700)
}

func (m *Manager) removeTmp(_ context.Context, rec state.Record) error {
	err := safefs.Remove(m.paths.tmp, rec.ID.User(), safefs.AsideName(rec.ID.User()))
	return errors.Join(err, safefs.Remove(m.paths.varTmp, rec.ID.User(), safefs.AsideName(rec.ID.User())))
}
