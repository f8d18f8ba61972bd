package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/exposure"
	"github.com/chatd/chatd/homedir"
	"github.com/chatd/chatd/state"
)

// CheckView checks on this host everything that a profile exposes, as a session of the profile
// would: each path exists, no chat could swap it, and it breaks no wall. The error is a
// [*exposure.KeyError].
func CheckView(opt Options, p chat.Profile) error {
	_, _, err := newManager(opt).lookAtView(p)
	if os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission) {
		return nil // only root can check it
	}
	return err
}

// openHost opens the host as the sessions of this manager see it.
func (m *Manager) openHost(uid uint32) (*exposure.Host, error) {
	own := []string{m.opt.Homes, m.opt.State, m.opt.Run, m.opt.Private, m.opt.Userdb}
	return exposure.Open(m.units, own, uid)
}

// checkViews checks the view of every profile before the first session is started.
func (m *Manager) checkViews() error {
	for name, p := range m.opt.Profiles {
		_, notes, err := m.lookAtView(p)
		if err != nil {
			return fmt.Errorf("cannot use profile %s: %w", name, err)
		}
		for _, n := range notes {
			m.log.Info("a profile opens less of the host than it may seem", "profile", name, "why", n)
		}
	}
	return nil
}

func (m *Manager) lookAtView(p chat.Profile) (all []chat.Exposed, notes []string, err error) {
	if !exposure.OpensHost(p) || m.without(chat.LayerView) {
		return nil, nil, nil
	}
	uid := m.probeUID()
	if os.Geteuid() != 0 {
		uid = 0
	}
	h, err := m.openHost(uid)
	if err != nil {
		return nil, nil, err
	}
	all, notes, err = h.Exposed(p, m.paths.homes+"/"+string(probeID), m.paths.homes)
	return all, notes, errors.Join(err, h.Close())
}

// exposed looks up, on the host as it is now, the paths that the chat's profile exposes to its
// session.
func (m *Manager) exposed(rec state.Record) (all []chat.Exposed, notes []string, err error) {
	p := m.profile(rec)
	if !exposure.OpensHost(p) || m.without(chat.LayerView) {
		return nil, nil, nil
	}
	h, err := m.openHost(rec.UID)
	if err != nil {
		return nil, nil, err
	}
	all, notes, err = h.Exposed(p, m.home(rec.ID), m.paths.homes)
	if err := errors.Join(err, h.Close()); err != nil {
		// The profile was valid when chatd started, so the host has changed. The error has no
		// kind: a bridge learns only where the log has it, and not the paths.
		return nil, nil, fmt.Errorf("cannot make the view of chat %s: profile %s: %v", rec.ID, p.Name, err)
	}
	return all, notes, nil
}

// makeMountPoints makes the mount points in the home. A mount inside another exposed path has
// its mount point in that path's source.
func (m *Manager) makeMountPoints(rec state.Record, all []chat.Exposed) error {
	home := m.home(rec.ID)
	var points []chat.Exposed
	for _, e := range all {
		if chat.Within(e.Target, home) && exposure.Holder(points, e.Target) == nil {
			points = append(points, e)
		}
	}
	if len(points) == 0 {
		return nil
	}
	return homedir.Inside(filepath.Dir(home), string(rec.ID), rec.UID, func(fd int) error {
		for _, e := range points {
			moved, err := homedir.MakeMountPoint(fd, strings.TrimPrefix(e.Target, home+"/"), e.File)
			if err != nil {
				return fmt.Errorf("cannot make the mount point %s: %w", e.Target, err)
			}
			if len(moved) > 0 {
				m.log.Warn("what a chat had where something is mounted was moved aside", "chat", rec.ID, "target", e.Target, "moved", moved)
			}
		}
		return nil
	})
}
