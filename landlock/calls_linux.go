package landlock

import (
	"fmt"
	"runtime"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
)

// AllowCalls refuses every thread of the process all system calls but the named ones, for good
// (seccomp(2)): by EPERM, as of another architecture's. It sets no_new_privs. Names that this
// architecture lacks are left out.
func AllowCalls(names []string) error {
	info, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("cannot make a system call filter: %w", err)
	}
	var known []string
	for _, n := range names {
		if _, ok := info.SyscallNames[n]; ok {
			known = append(known, n)
		}
	}
	runtime.LockOSThread() // no_new_privs, which the filter needs, is the thread's until it is loaded
	defer runtime.UnlockOSThread()
	err = seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno, // the library adds EPERM
			Syscalls:      []seccomp.SyscallGroup{{Action: seccomp.ActionAllow, Names: known}},
		},
	})
	if err != nil {
		return fmt.Errorf("cannot load a system call filter: %w", err)
	}
	return nil
}
