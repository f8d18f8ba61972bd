package provision

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/homedir"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/trees"
)

// home is the path of the chat's home, which is the same on the host and in the session.
//
// The home of probes is elsewhere: a chat can fill the file system of the homes.
func (m *Manager) home(id chat.ID) string {
	if id == probeID {
		return filepath.Join(m.paths.probe, string(id))
	}
	return filepath.Join(m.paths.homes, string(id))
}

// tmpParents are the directories that hold the chat's /tmp and /var/tmp. Those of probes are
// beside their home, except with systemd: there PAM knows only one directory.
func (m *Manager) tmpParents(id chat.ID) (tmp, varTmp string) {
	if id == probeID && !m.units {
		return filepath.Join(m.paths.probe, "tmp"), filepath.Join(m.paths.probe, "vartmp")
	}
	return m.paths.tmp, m.paths.varTmp
}

// homeMode is 0700: only the chat and root may pass.
func (m *Manager) homeMode() os.FileMode {
	if m.without(chat.LayerHome) {
		return 0o755
	}
	return 0o700
}

// createHome builds the home under a name that no chat has, and renames it into place once it
// is complete: a crash leaves a whole home or none. It neither replaces nor fills a home that
// exists.
func (m *Manager) createHome(_ context.Context, rec state.Record) error {
	skeleton := m.opt.Profiles[rec.Profile].Skeleton
	if err := homedir.MakeOwned(filepath.Dir(m.home(rec.ID)), string(rec.ID), rec.UID, m.homeMode(), skeleton); err != nil {
		return err
	}
	return m.makeInstanceDirs(rec)
}

// makeInstanceDirs makes what every home has, where it is missing.
func (m *Manager) makeInstanceDirs(rec state.Record) error {
	return homedir.MakeInstanceDirs(filepath.Dir(m.home(rec.ID)), string(rec.ID), rec.UID)
}

func (m *Manager) driftHome(_ context.Context, rec state.Record) (string, error) {
	return homedir.DriftOwned(m.paths.homes, string(rec.ID), rec.UID, m.homeMode())
}

func (m *Manager) removeHome(_ context.Context, rec state.Record) error {
	return trees.Remove(filepath.Dir(m.home(rec.ID)), string(rec.ID), trees.AsideName(string(rec.ID)))
}

// createTmp makes the directories that the session sees as /tmp and /var/tmp. Their names are
// those that pam_namespace(8) gives a user's instances.
func (m *Manager) createTmp(_ context.Context, rec state.Record) error {
	tmp, varTmp := m.tmpParents(rec.ID)
	err := homedir.MakeOwned(tmp, rec.ID.User(), rec.UID, 0o700, "")
	return errors.Join(err, homedir.MakeOwned(varTmp, rec.ID.User(), rec.UID, 0o700, ""))
}

func (m *Manager) driftTmp(_ context.Context, rec state.Record) (string, error) {
	why, err := homedir.DriftOwned(m.paths.tmp, rec.ID.User(), rec.UID, 0o700)
	if err != nil || why != "" {
		return why, err
	}
	return homedir.DriftOwned(m.paths.varTmp, rec.ID.User(), rec.UID, 0o700)
}

func (m *Manager) removeTmp(_ context.Context, rec state.Record) error {
	tmp, varTmp := m.tmpParents(rec.ID)
	err := trees.Remove(tmp, rec.ID.User(), trees.AsideName(rec.ID.User()))
	return errors.Join(err, trees.Remove(varTmp, rec.ID.User(), trees.AsideName(rec.ID.User())))
}
