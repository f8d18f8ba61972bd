package view

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/landlock"
)

// Start is what a session starts from.
type Start struct {
	Chat    chat.ID
	Profile string
	View    plan.View
	// Plan is how its first process confines itself.
	Plan plan.Plan
	// Apart: it has inodes of its own for what is read-only and shared with other sessions.
	Apart bool
	// Rules is the file of the chat's file rules; empty if the kernel enforces none.
	Rules string
	// Notes are those of [Planner.Next], and of the caller.
	Notes []string
}

// Describe tells what the session sees, and how it is confined.
func (s Start) Describe() chat.Plan {
	out := describe(s.View, s.Plan)
	out.ID, out.Profile = s.Chat, s.Profile
	out.Notes = append(out.Notes, s.Notes...)
	if s.Apart {
		out.Notes = append(out.Notes, "what is read-only and shared with other sessions is seen "+
			"through overlays of this one's own")
	}
	if !slices.Contains(s.View.Without, chat.LayerProc) {
		out.Notes = append(out.Notes, "what /proc counts for the whole host is covered where "+
			"ordinary programs do not need it")
	}
	if s.Rules != "" {
		out.Notes = append(out.Notes, fmt.Sprintf("the file rules of %s are kept beside this: "+
			"what they deny is mounted over, as it comes and goes", s.Rules))
	}
	return out
}

// Begin is Describe for a session that starts now, and logs it: as a matter of course for a
// session that sees nothing special.
func (s Start) Begin(log *slog.Logger) chat.Plan {
	plan := s.Describe()
	now := time.Now().UTC()
	plan.StartedAt = &now
	write := log.Debug
	if len(s.View.Exposed)+len(s.Notes) > 0 {
		write = log.Info
	}
	var mounts []string
	for _, m := range plan.Mounts {
		mounts = append(mounts, fmt.Sprintf("%s %s->%s %s", m.Type, m.Source, m.Target, m.Mode))
	}
	write("linux isolation mount plan", "chat", s.Chat, "profile", s.Profile, "mounts", mounts,
		"landlock", plan.Landlock, "env", plan.Env, "network", plan.Network,
		"namespaces", plan.Namespaces, "seccomp", len(plan.Seccomp), "without", plan.Without,
		"notes", plan.Notes)
	return plan
}

// describe returns the plan of a session of v: the entries behind bwrap's arguments, and the rules
// and the names of the environment of p, to which its first process confines itself. The caller
// fills in the rest.
func describe(v plan.View, p plan.Plan) chat.Plan {
	env := []string{}
	for _, e := range p.Env {
		name, _, _ := strings.Cut(e, "=")
		env = append(env, name)
	}
	slices.Sort(env)
	out := chat.Plan{
		User: v.User, UID: v.UID, Mounts: v.Mounts(), Landlock: pathRights(p),
		LandlockABI: p.MinABI, Env: env,
		Network: v.Network, Namespaces: v.Namespaces(), Seccomp: []string{}, SeccompConditional: []string{},
		Without: append([]chat.LayerName{}, p.Without...), Notes: []string{},
	}
	if !p.LeavesOut(chat.LayerSeccomp) {
		out.Seccomp = slices.Sorted(slices.Values(plan.RefusedCalls))
		out.SeccompConditional = plan.CheckedCalls(p.Opened)
	}
	return out
}

// pathRights are the rules that p enforces.
func pathRights(p plan.Plan) []chat.PathRight {
	out := []chat.PathRight{}
	if p.LeavesOut(chat.LayerLandlock) {
		return out
	}
	return append(out, rightsOf(p.Landlock)...)
}

func rightsOf(r landlock.Rules) (out []chat.PathRight) {
	for _, l := range []struct {
		right string
		paths []string
	}{
		{"list", r.List}, {"read", r.Read}, {"exec", r.Exec}, {"write", r.Write}, {"read_files", r.ReadFiles},
		{"exec_files", r.ExecFiles},
		{"write_files", r.WriteFiles}, {"devices", r.Devices}, {"device_dirs", r.DeviceDirs},
	} {
		for _, path := range l.paths {
			out = append(out, chat.PathRight{Right: l.right, Path: path})
		}
	}
	return out
}
