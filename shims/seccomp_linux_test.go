package shims

import (
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/must"
)

// TestCheckedCalls: package plan names the system calls that the filter checks by their arguments.
func TestCheckedCalls(t *testing.T) {
	info := must.Get(arch.GetInfo(""))(t)
	for _, may := range []plan.Openings{{}, {Filters: true}, {Netlink: true}} {
		var checked []string
		rules := argumentRules(info.SyscallNames, may)
		for i, ins := range rules[:len(rules)-1] { // see rule
			jump, ok := rules[i+1].(bpf.JumpIf)
			if load, isLoad := ins.(bpf.LoadAbsolute); isLoad && load.Off == nrOffset && ok {
				checked = append(checked, info.SyscallNumbers[int(jump.Val)])
			}
		}
		slices.Sort(checked)
		want := known(plan.CheckedCalls(may), info)
		if got := slices.Compact(checked); !slices.Equal(got, want) {
			t.Errorf("%+v: the filter checks %q, and the plan says %q", may, got, want)
		}
	}
}
