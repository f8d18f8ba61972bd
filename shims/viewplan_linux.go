package shims

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/landlock"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

// Describe returns the plan of a session of v: the entries behind bwrap's arguments,
// and the rules and the names of the environment of p, to which its first process confines
// itself. The caller fills in the rest.
func Describe(v plan.View, p plan.Plan) (chat.Plan, error) {
	refused, checked, err := filtered(p)
	if err != nil {
		return chat.Plan{}, err
	}
	var env []string
	for _, e := range p.Env {
		name, _, _ := strings.Cut(e, "=")
		env = append(env, name)
	}
	slices.Sort(env)
	return chat.Plan{
		User: v.User, UID: v.UID, Mounts: v.Mounts(), Landlock: pathRights(p), LandlockABI: p.MinABI, Env: env,
		Network: v.Network, Namespaces: v.Namespaces(), Seccomp: refused, SeccompConditional: checked,
		Without: append([]chat.LayerName{}, p.Without...), Notes: []string{},
	}, nil
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
		{"list", r.List}, {"read", r.Read}, {"exec", r.Exec}, {"write", r.Write}, {"read_files", r.ReadFiles}, {"exec_files", r.ExecFiles},
		{"write_files", r.WriteFiles}, {"devices", r.Devices}, {"device_dirs", r.DeviceDirs},
	} {
		for _, path := range l.paths {
			out = append(out, chat.PathRight{Right: l.right, Path: path})
		}
	}
	return out
}

// filtered names the system calls that the filter of p has for this architecture: those that it
// always refuses, and those that it checks by their arguments.
func filtered(p plan.Plan) (refusedCalls, checked []string, err error) {
	refusedCalls, checked = []string{}, []string{}
	if p.LeavesOut(chat.LayerSeccomp) {
		return refusedCalls, checked, nil
	}
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, nil, fmt.Errorf("cannot name the system calls: %w", err)
	}
	names := map[uint32]string{}
	for name, nr := range info.SyscallNames {
		names[uint32(nr)] = name
	}
	rules := argumentRules(info.SyscallNames, p.Opened)
	for i, ins := range rules[:len(rules)-1] { // see rule
		jump, ok := rules[i+1].(bpf.JumpIf)
		if load, isLoad := ins.(bpf.LoadAbsolute); isLoad && load.Off == nrOffset && ok {
			checked = append(checked, names[jump.Val])
		}
	}
	refusedCalls = known(refused, info)
	slices.Sort(refusedCalls)
	slices.Sort(checked)
	return refusedCalls, slices.Compact(checked), nil
}
