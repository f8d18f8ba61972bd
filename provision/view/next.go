package view

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/exposure"
	"github.com/chatd/chatd/provision/homedir"
)

// Next returns what a session of the chat would see if it began now, and notes on what its profile
// asks for and the session would not see.
func (p *Planner) Next(c Chat) (plan.View, []string, error) {
	v := p.Of(c)
	v.PolicyDir, v.Etc = c.Dir.Policy(), plan.ReadEtc()
	var notes []string
	var err error
	v.Exposed, notes, err = p.exposed(c, c.UID, nil)
	return v, notes, viewError(c, err)
}

// viewError has no kind: the profile was valid when chatd started, so the host has changed. A
// bridge learns only where the log has it, and not the paths.
func viewError(c Chat, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot make the view of chat %s: profile %s: %v", c.ID, c.Profile.Name, err)
}

// Check checks on this host everything that the chat's profile exposes, as its session would: each
// path exists, no chat could swap it, and it breaks no wall. An error is an [*exposure.KeyError].
// Only root can check all of it: what another user may not look at counts as right.
func (p *Planner) Check(c Chat) (all []chat.Exposed, notes []string, err error) {
	if os.Geteuid() == 0 {
		return p.exposed(c, c.UID, nil)
	}
	all, notes, err = p.exposed(c, 0, nil)
	if errors.Is(err, fs.ErrPermission) {
		err = nil
	}
	return all, notes, err
}

// exposed looks up, on the host as it is now, the paths that the chat's profile exposes. The user
// must be able to reach each; 0 is none.
func (p *Planner) exposed(
	c Chat, user uint32, recent *exposure.Searches,
) (all []chat.Exposed, notes []string, err error) {
	if !exposure.OpensHost(c.Profile) || p.opt.Layers.Without(chat.LayerView) {
		return nil, nil, nil
	}
	h, err := exposure.Open(p.opt.Units, p.opt.Own, user, recent)
	if err != nil {
		return nil, nil, err
	}
	all, notes, err = h.Exposed(c.Profile, c.Home, p.opt.Homes)
	if err := errors.Join(err, h.Close()); err != nil {
		return nil, nil, err
	}
	return all, notes, nil
}

// ForTools returns what of the host the file tools of a chat see: what its session sees, or would
// see, and what matches an expression of the profile by now. The session is nil for a chat asleep,
// whose home gets the mount points. Results of searches serve for 2 seconds, for all chats of the
// profile.
func (p *Planner) ForTools(c Chat, session []chat.Exposed) ([]chat.Exposed, error) {
	grants := len(c.Profile.AllowReadPaths) + len(c.Profile.AllowWritePaths)
	if session != nil && grants == 0 {
		return session, nil
	}
	now, _, err := p.exposed(c, c.UID, p.searches)
	if session == nil {
		return now, errors.Join(viewError(c, err), p.MakeMountPoints(c, now))
	}
	if err != nil {
		p.opt.Log.Warn("file tools see the matches of the session's start alone", "chat", c.ID, "why", err)
	}
	all := slices.Clone(session)
	for _, e := range now {
		if exposure.Containing(all, e.Target) == nil && strings.HasPrefix(e.By, "allow_") {
			all = append(all, e)
		}
	}
	return all, nil
}

// MakeMountPoints makes the mount points of exposed paths in the chat's home. A mount inside
// another exposed path has its mount point in that path's source.
func (p *Planner) MakeMountPoints(c Chat, all []chat.Exposed) error {
	var points []chat.Exposed
	for _, e := range all {
		if chat.Within(e.Target, c.Home) && exposure.Containing(points, e.Target) == nil {
			points = append(points, e)
		}
	}
	if len(points) == 0 {
		return nil
	}
	parent, name := filepath.Split(c.Home)
	return homedir.Inside(filepath.Clean(parent), name, c.UID, func(fd int) error {
		for _, e := range points {
			rel := strings.TrimPrefix(e.Target, c.Home+"/")
			moved, err := homedir.MakeMountPoint(fd, rel, e.File)
			if err != nil {
				return fmt.Errorf("cannot make the mount point %s: %w", e.Target, err)
			}
			if len(moved) > 0 {
				p.opt.Log.Warn("what a chat had where something is mounted was moved aside",
					"chat", c.ID, "target", e.Target, "moved", moved)
			}
		}
		return nil
	})
}
