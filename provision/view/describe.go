package view

import (
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/landlock"
)

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
