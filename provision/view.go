package provision

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/exposure"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/provision/view"
)

// mounts plans what sessions and file tools see of the host.
type mounts struct {
	*chats
	views *view.Planner
	disk  *disk
}

// viewer returns the chat as package view knows it.
func (mt *mounts) viewer(rec subject) view.Chat {
	p := rec.profile
	return view.Chat{
		ID: rec.ID, UID: rec.UID, Profile: p, Env: rec.Env, Home: rec.home,
		Tmp: filepath.Join(mt.dirs.Tmp, rec.ID.User()), VarTmp: filepath.Join(mt.dirs.VarTmp, rec.ID.User()),
		Dir: mt.dirs.sessionDir(rec.ID, rec.UID), Network: mt.layers.Network(p),
		Denied:  mt.policy.Closed(rec.rules()),
		Secrets: mt.secrets.vars(rec), OwnTrust: len(rec.profile.Secrets) > 0,
	}
}

// next is what a session of the chat would see if it began now, with what was asked for
// and is not in it.
func (mt *mounts) next(rec subject) (plan.View, []string, error) {
	v, notes, err := mt.views.Next(mt.viewer(rec))
	v.Masked = mt.policy.Masks(rec.rules(), v)
	return v, notes, err
}

// of is what the session sees since it began, whatever the config says by now.
func (mt *mounts) of(rec subject, s *liveSession) plan.View {
	c := mt.viewer(rec)
	if s.Plan != nil && s.Plan.Profile != rec.Profile { // what it sees is of its profile then
		now := c.Profile
		c.Profile = mt.policy.Profile(s.Plan.Profile)
		c.Network = mt.layers.Network(c.Profile)
		c.Profile.Env, c.Profile.Limits = now.Env, now.Limits
	}
	c.OwnTrust = c.OwnTrust && c.Dir.HasTrust() // it may have begun before there were secrets
	v := mt.views.Of(c)
	v.Exposed = s.Exposed
	return v
}

// look returns what a session of the profile would see of the host.
func (mt *mounts) look(p chat.Profile) (all []chat.Exposed, notes []string, err error) {
	return mt.views.Check(view.Chat{UID: mt.dirs.probeUID, Home: mt.dirs.Home(probeID), Profile: p})
}

// check checks the view of every profile before the first session is started.
func (mt *mounts) check() error {
	for name, p := range mt.opt.Profiles {
		_, notes, err := mt.look(p)
		if err != nil {
			return fmt.Errorf("cannot use profile %s: %w", name, err)
		}
		for _, n := range notes {
			mt.log.Info("a profile opens less of the host than it may seem", "profile", name, "why", n)
		}
	}
	return nil
}

// seen is what a session sees of the host, for the audit log; nil if nothing.
func seen(s *liveSession) map[string]string {
	if s == nil || len(s.Exposed) == 0 {
		return nil
	}
	const maxNotes = 50
	var all []string
	for _, e := range s.Exposed[:min(maxNotes, len(s.Exposed))] {
		all = append(all,
			fmt.Sprintf("%s at %s %s", chat.QuotePath(e.Source), chat.QuotePath(e.Target), e.Mode))
	}
	return map[string]string{"exposed": strings.Join(all, " "), "paths": fmt.Sprint(len(s.Exposed))}
}

// layersOf returns the layers of a chat: the probe's results for this host and
// for its kind of network and, while it is awake, what its session's first process
// read back from the kernel.
func (mt *mounts) layersOf(rec subject, s *liveSession) []chat.Layer {
	all := mt.layers.Of(mt.layers.Network(rec.profile))
	if s == nil {
		return all
	}
	for i := range all {
		l := s.Report.Correct(all[i])
		if l.Name == chat.LayerView {
			l = mt.policy.ViewLayer(context.Background(), rec.rules(), s.Session, l)
		}
		if l.Name == chat.LayerLandlock && l.State != chat.LayerOff {
			l = policy.LandlockLayer(l, mt.of(rec, s))
		}
		all[i] = l
	}
	return all
}

// toolPlan returns what a tool of the chat sees, and the paths that it may use there: its home, its
// temporary directories, and what its session sees of the host or, without one, would see. A tool
// also sees what matches an expression of the profile only since the session began.
func (mt *mounts) toolPlan(rec subject) (may plan.FileTool, err error) {
	c := mt.viewer(rec)
	trees := []chat.Exposed{
		{Source: c.Home, Target: c.Home}, {Source: c.Tmp, Target: "/tmp"},
		{Source: c.VarTmp, Target: "/var/tmp"},
	}
	if mt.layers.Without(chat.LayerTmp) {
		trees[1].Source, trees[2].Source = "/tmp", "/var/tmp"
	}
	var has []chat.Exposed
	if s := mt.chats.session(rec.ID); s.lives() {
		has = append([]chat.Exposed{}, s.Exposed...)
	}
	exposed, err := mt.views.ForTools(c, has)
	may = mt.toolGrants(rec)
	may.Confine = &plan.ToolView{
		UID: rec.UID, Limits: mt.disk.processLimits(rec), Trees: append(trees, exposed...),
	}
	return may, err
}

// toolGrants returns the paths that a chat's tools may use: its home, its /tmp, and the profile's
// grants, as far as the view shows them.
func (mt *mounts) toolGrants(rec subject) plan.FileTool {
	may := view.FileTool(rec.profile, rec.home)
	may.MaxBytes = cmp.Or(mt.opt.FileMax, defaultFileMax)
	return may
}

// sharedTrees returns the trees that every session of a profile sees and no chat can write to. A
// chat that could write there could keep an operator's rules from loading.
func (mt *mounts) sharedTrees(profile string) []chat.Exposed {
	if mt.layers.Without(chat.LayerView) {
		return nil
	}
	trees := policy.SystemTrees()
	all, _, err := mt.look(mt.opt.Profiles[profile])
	if err != nil {
		mt.log.Warn("what a profile exposes cannot be looked at; its file rules are not counted there",
			"profile", profile, "why", err)
	}
	for _, e := range all {
		if e.Mode == chat.ReadOnly && !exposure.Writable(mt.opt.Profiles, e.Source) {
			trees = append(trees, e)
		}
	}
	return trees
}

// closedBy returns the denied paths that bubblewrap masks in the chat's session, and those to
// which Landlock grants nothing. For a sleeping chat they are those of its next session, found by
// one look at the host.
func (mt *mounts) closedBy(rec subject) (masked, leftOut []string) {
	if s := mt.chats.session(rec.ID); s != nil {
		return policy.Masked(s.Session), policy.LeftOut(mt.of(rec, s))
	}
	if len(mt.policy.Closed(rec.rules())) == 0 {
		return nil, nil
	}
	v, _, err := mt.next(rec)
	if err != nil {
		v.Masked = nil // a wake reports the error
	}
	return targets(v.Masked), policy.LeftOut(v)
}

// defaultFileMax is the bound in bytes that FileMax 0 means.
const defaultFileMax = 1 << 30

func targets(list []chat.Exposed) (all []string) {
	for _, e := range list {
		all = append(all, e.Target)
	}
	return all
}
