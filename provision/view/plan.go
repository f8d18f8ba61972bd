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

// Describe tells what the session sees, and how it is confined: the entries behind bwrap's arguments,
// and the rules and the names of the environment to which its first process confines itself.
func (s Start) Describe() chat.Plan {
	v, p := s.View, s.Plan
	out := chat.Plan{
		ID: s.Chat, Profile: s.Profile,
		User: v.User, UID: v.UID, Mounts: v.Mounts(), Landlock: []chat.PathRight{},
		LandlockABI: p.MinABI, Env: make([]string, len(p.Env)),
		Network: v.Network, Namespaces: v.Namespaces(), Seccomp: []string{}, SeccompConditional: []string{},
		Without: append([]chat.LayerName{}, p.Without...), Notes: append([]string{}, s.Notes...),
	}
	for i, e := range p.Env {
		out.Env[i], _, _ = strings.Cut(e, "=")
	}
	slices.Sort(out.Env)
	if !p.LeavesOut(chat.LayerSeccomp) {
		out.Seccomp = slices.Sorted(slices.Values(plan.RefusedCalls))
		out.SeccompConditional = plan.CheckedCalls(p.Opened)
	}
	if !p.LeavesOut(chat.LayerLandlock) {
		out.Landlock = append(out.Landlock, rightsOf(p.Landlock)...)
	}
	if s.Apart {
		out.Notes = append(out.Notes, "what is read-only and shared with other sessions is seen "+
			"through overlays of this one's own")
	}
	if !v.LeavesOut(chat.LayerProc) {
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
