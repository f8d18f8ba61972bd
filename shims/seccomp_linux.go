package shims

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/chatd/chatd/internal/plan"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filter is the whole program. It checks the architecture, then calls by their arguments, then the
// list. go-seccomp-bpf gives a foreign architecture the default action, which for a list of
// refusals is to allow it (its issue #48), and compares arguments with 64 bits, which fails for a
// call that reads 32 (CVE-2019-10063). So this package writes both checks itself.
func filter(may plan.Openings) ([]bpf.RawInstruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
		{Action: seccomp.ActionErrno | seccomp.Action(unix.EPERM), Names: known(plan.RefusedCalls, info)},
	}}
	list, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
	}
	return bpf.Assemble(slices.Concat(program, argumentRules(info.SyscallNames, may), list))
}

// known are the calls that this architecture has.
func known(names []string, info *arch.Info) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		_, ok := info.SyscallNames[n]
		return !ok
	})
}

// loadFilter loads the filter for the calling thread, whose exec keeps it. It needs
// no_new_privs or CAP_SYS_ADMIN.
func loadFilter(may plan.Openings) error {
	raw, err := filter(may)
	if err != nil {
		return fmt.Errorf("cannot make a system call filter: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&program))); e != 0 {
		return fmt.Errorf("cannot load a system call filter: %w", e)
	}
	return nil
}
