package provision

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// exposedView is what a session of the chat would see if it began now, with what
// was asked for and is not in it.
func (m *Manager) exposedView(rec state.Record) (shims.View, []string, error) {
	v := m.view(rec)
	v.PolicyDir, v.Etc = m.shimPolicyDir(rec.ID), shims.ReadEtc()
	var notes []string
	var err error
	v.Exposed, notes, err = m.exposed(rec)
	v.Masked = m.masks(rec, v)
	return v, notes, err
}

// preparedView is exposedView with the home made ready for it. The caller holds the
// chat's lock.
func (m *Manager) preparedView(rec state.Record) (shims.View, []string, error) {
	v, notes, err := m.exposedView(rec)
	if err == nil {
		err = m.makeMountPoints(rec, v.Exposed)
	}
	return v, notes, err
}

// sessionView is what the session sees since it began, whatever the config says by now.
func (m *Manager) sessionView(rec state.Record, s *session) shims.View {
	v := m.view(rec)
	v.Exposed = s.exposed
	return v
}

// Plan tells what the session of the chat was started from or, while the chat is
// asleep, what it would be. Only an operator may ask: it names paths of the host.
func (m *Manager) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Plan{}, err
	}
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return chat.Plan{}, fmt.Errorf("cannot tell the plan of chat %s: it names paths of the host, and is for operators: %w", id, chat.ErrDenied)
	}
	s := m.session(id)
	if s != nil && s.init.Alive() && s.plan != nil {
		return *s.plan, nil
	}
	v, notes, err := m.exposedView(rec)
	if s != nil {
		notes = append(notes, "an older chatd began the session that runs, and kept no plan: this is the next one's")
	}
	if err != nil {
		return chat.Plan{}, err
	}
	return m.describePlan(rec, v, m.plan(v, rec, v.Home, m.sessionArgv(), nil), notes)
}

// describePlan tells what v and p are.
func (m *Manager) describePlan(rec state.Record, v shims.View, p shims.Plan, notes []string) (chat.Plan, error) {
	out, err := v.Describe(p)
	if err != nil {
		return out, fmt.Errorf("cannot tell the plan of chat %s: %w", rec.ID, err)
	}
	out.ID, out.Profile = rec.ID, rec.Profile
	out.Notes = append(out.Notes, notes...)
	if m.keepApart(rec, v) != nil {
		out.Notes = append(out.Notes, "what is read-only and shared with other sessions is seen through overlays of this one's own")
	}
	if !m.without(chat.LayerProc) {
		out.Notes = append(out.Notes, "what /proc counts for the whole host is covered where ordinary programs do not need it")
	}
	if policy := m.policy(rec); enforce.Needed(policy, rec.Agent) {
		file, _ := policy.Source()
		out.Notes = append(out.Notes, fmt.Sprintf("the file rules of %s are kept beside this: what they deny is mounted over, as it comes and goes", file))
	}
	return out, nil
}

// keepPlan remembers what the session is started from, and logs it.
func (m *Manager) keepPlan(rec state.Record, s *session, v shims.View, p shims.Plan, notes []string) error {
	plan, err := m.describePlan(rec, v, p, notes)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	plan.StartedAt = &now
	masked := targets(v.Masked)
	s.plan, s.exposed = &plan, v.Exposed
	s.masked.Store(&masked)
	log := m.log.Debug
	if len(v.Exposed)+len(notes) > 0 {
		log = m.log.Info
	}
	var mounts []string
	for _, mount := range plan.Mounts {
		mounts = append(mounts, fmt.Sprintf("%s %s->%s %s", mount.Type, mount.Source, mount.Target, mount.Mode))
	}
	log("linux isolation mount plan", "chat", rec.ID, "profile", rec.Profile, "mounts", mounts, "landlock", plan.Landlock,
		"env", plan.Env, "network", plan.Network, "namespaces", plan.Namespaces, "seccomp", len(plan.Seccomp), "without", plan.Without, "notes", plan.Notes)
	return nil
}

// grantedToTools is what the file tools may use besides the home: what the profile
// grants, by the same expressions, and what it exposes.
func (m *Manager) grantedToTools(rec state.Record) (readOutside bool, read, write []string) {
	p := m.profile(rec)
	read, write = slices.Clone(p.AllowReadPaths), slices.Clone(p.AllowWritePaths)
	for _, e := range p.ExposePaths {
		target := e.At()
		if strings.HasPrefix(target, "~/") {
			continue // the tools may use the home anyway, and the kernel keeps the mode
		}
		exact := "^" + regexp.QuoteMeta(path.Clean(target))
		if read = append(read, exact); e.Mode == chat.ReadWrite {
			write = append(write, exact)
		}
	}
	return p.AllowReadOutsideWorkspace, read, write
}

// seen is what a session sees of the host, for the audit log; nil if nothing.
func seen(s *session) map[string]string {
	if s == nil || len(s.exposed) == 0 {
		return nil
	}
	const most = 50
	var all []string
	for _, e := range s.exposed[:min(most, len(s.exposed))] {
		all = append(all, fmt.Sprintf("%s at %s %s", auditText(e.Source), auditText(e.Target), e.Mode))
	}
	return map[string]string{"exposed": strings.Join(all, " "), "paths": fmt.Sprint(len(s.exposed))}
}
