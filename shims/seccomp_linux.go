package shims

import (
	"fmt"
	"unsafe"

	"github.com/chatd/chatd/internal/plan"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refused are system calls that fail with EPERM whatever their arguments
// (seccomp(2)). Names that this architecture lacks are left out.
var refused = []string{
	// Keys outlive the process and the account; processes of one uid share their keyrings.
	"keyctl", "add_key", "request_key",
	// Large kernel surfaces that no everyday program needs, and ways round this filter.
	"io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd",
	"fanotify_init", "fanotify_mark", "kcmp", "lookup_dcookie", "move_pages", "migrate_pages", "vhangup",
	// The host has one pool of requests (fs.aio-max-nr): a chat could exhaust it for the
	// host's databases.
	"io_setup",
	// Each policy for a page of shared memory takes kernel memory that no limit counts.
	"mbind", "set_mempolicy", "set_mempolicy_home_node",
	// One call for all socket operations, with its arguments where no filter sees them.
	"socketcall",
	// It counts the pages of /usr in memory, and so tells what others run. mincore(2) tells that
	// only of files that the caller may write.
	"cachestat",
	// The view is final.
	"mount", "umount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount",
	"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "setns", "open_by_handle_at",
	// The host's.
	"init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms",
	"kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd",
	"syslog", "settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64", "adjtimex", "stime",
	"sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "nfsservctl", "uselib", "sysfs", "_sysctl",
}

// filter is the whole program. It checks the architecture, then calls by their arguments, then the
// list. go-seccomp-bpf gives a foreign architecture the default action, which for a list of
// refusals is to allow it (its issue #48), and compares arguments with 64 bits, which fails for a
// call that reads 32 (CVE-2019-10063). So this package writes both checks itself.
func filter(may plan.Openings) ([]bpf.RawInstruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("cannot make a system call filter: %w", err)
	}
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
		{Action: seccomp.ActionErrno | seccomp.Action(unix.EPERM), Names: known(refused, info)},
	}}
	list, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("cannot make a system call filter: %w", err)
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
	}
	raw, err := bpf.Assemble(append(append(program, argumentRules(info.SyscallNames, may)...), list...))
	if err != nil {
		return nil, fmt.Errorf("cannot make a system call filter: %w", err)
	}
	return raw, nil
}

func known(names []string, info *arch.Info) []string {
	var out []string
	for _, n := range names {
		if _, ok := info.SyscallNames[n]; ok {
			out = append(out, n)
		}
	}
	return out
}

// loadFilter loads the filter for the calling thread, whose exec keeps it. It needs
// no_new_privs or CAP_SYS_ADMIN.
func loadFilter(may plan.Openings) error {
	raw, err := filter(may)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); e != 0 {
		return fmt.Errorf("cannot load a system call filter: %w", e)
	}
	return nil
}
