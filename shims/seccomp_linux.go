package shims

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/plan"
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

// Offsets in struct seccomp_data (seccomp(2)).
const (
	nrOffset   = 0
	archOffset = 4
	argsOffset = 16
)

// newNamespaces are the CLONE_NEW flags of clone(2) and unshare(2). CLONE_NEWTIME applies to
// unshare alone: clone uses its bit for the signal number.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// argumentRules check calls by their arguments. They compare only the low 32 bits: each of these
// arguments is an int or unsigned int, of which the kernel drops the rest. numbers are the call
// numbers of this architecture, which may lack mknod(2). may is what the profile allows.
func argumentRules(numbers map[string]int, may plan.Openings) []bpf.Instruction {
	rules := [][]bpf.Instruction{
		// TIOCSTI and TIOCLINUX type into a terminal; TIOCSETD loads line disciplines.
		rule(unix.SYS_IOCTL, anyOf(1, unix.EPERM, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD)),
		rule(unix.SYS_SOCKET, socketRule(may.Netlink)),
		rule(unix.SYS_SOCKETPAIR, oneOf(0, unix.EPERM, unix.AF_UNIX)),
		rule(unix.SYS_CLONE, append(anyBit(0, unix.EPERM, newNamespaces), sharedFilesRule()...)),
		rule(unix.SYS_UNSHARE, anyBit(0, unix.EPERM, newNamespaces|unix.CLONE_NEWTIME)),
		// clone3 takes its flags by a pointer, which no filter can follow; on ENOSYS a C
		// library falls back to clone.
		rule(unix.SYS_CLONE3, []bpf.Instruction{refuseWith(unix.ENOSYS)}),
		// Data in the SYN is delivered before package netpolicy checks the reply. A kernel
		// without fast open returns EOPNOTSUPP.
		rule(unix.SYS_SENDTO, anyBit(3, unix.EOPNOTSUPP, unix.MSG_FASTOPEN)),
		rule(unix.SYS_SENDMSG, anyBit(2, unix.EOPNOTSUPP, unix.MSG_FASTOPEN)),
		rule(unix.SYS_SENDMMSG, anyBit(3, unix.EOPNOTSUPP, unix.MSG_FASTOPEN)),
		rule(unix.SYS_SETSOCKOPT, optionRule(may.Netlink)),
		filterRules(may.Filters),
		rule(unix.SYS_FCNTL, anyOf(1, unix.EINVAL, unix.F_OFD_SETLK, unix.F_OFD_SETLKW)),
		// It would drop pages of /usr for everybody, which another chat can time. As advice it may
		// have no effect, and succeeds (posix_fadvise(2)).
		rule(unix.SYS_FADVISE64, anyOf(3, 0, unix.FADV_DONTNEED)),
		rule(unix.SYS_MKNODAT, deviceRule(2)),
		// RENAME_WHITEOUT leaves a whiteout in place of the file. A file system without
		// whiteouts returns EINVAL.
		rule(unix.SYS_RENAMEAT2, anyBit(4, unix.EINVAL, unix.RENAME_WHITEOUT)),
	}
	if mknod, ok := numbers["mknod"]; ok {
		rules = append(rules, rule(uint32(mknod), deviceRule(1)))
	}
	return slices.Concat(rules...)
}

// sharedFilesRule refuses clone(2) of a process that shares its descriptors and is no
// thread. The kernel counts the locks of both for the first, which may end before the
// other. It counts the locks of an open file description (F_OFD_SETLK) in the same way.
func sharedFilesRule() []bpf.Instruction {
	return []bpf.Instruction{
		argument(0),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.CLONE_FILES | unix.CLONE_THREAD},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.CLONE_FILES, SkipTrue: 1},
		refuseWith(unix.EPERM),
	}
}

// deviceRule refuses device nodes and allows regular files, FIFOs and sockets (mknod(2)). Any user
// may make a whiteout, a character device with number 0. The Landlock of some kernels does not
// treat it as a character device (Debian's 6.1.0-56, tried).
func deviceRule(mode uint32) []bpf.Instruction {
	return []bpf.Instruction{
		argument(mode),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.S_IFMT},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.S_IFCHR, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.S_IFBLK, SkipTrue: 1},
		refuseWith(unix.EPERM),
	}
}

// rule runs body for one system call and falls through for others, and after body.
func rule(nr uint32, body []bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: nrOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: uint8(len(body))},
	}, body...)
}

// argument loads the low half of argument n.
func argument(n uint32) bpf.Instruction {
	off := argsOffset + 8*n
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // big-endian
		off += 4
	}
	return bpf.LoadAbsolute{Off: off, Size: 4}
}

func refuseWith(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// anyOf refuses the values.
func anyOf(arg uint32, errno unix.Errno, values ...uint32) []bpf.Instruction {
	out := []bpf.Instruction{argument(arg)}
	for _, v := range values {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: 1}, refuseWith(errno))
	}
	return out
}

// oneOf refuses everything but the values.
func oneOf(arg uint32, errno unix.Errno, values ...uint32) []bpf.Instruction {
	out := []bpf.Instruction{argument(arg)}
	for i, v := range values {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(out, refuseWith(errno))
}

// anyBit refuses a value with one of the bits.
func anyBit(arg uint32, errno unix.Errno, bits uint32) []bpf.Instruction {
	return []bpf.Instruction{
		argument(arg),
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: bits, SkipTrue: 1},
		refuseWith(errno),
	}
}
