package plan

import "slices"

// RefusedCalls are the system calls that fail with EPERM in a session whatever their arguments
// (seccomp(2)). The filter leaves out names that its architecture lacks.
var RefusedCalls = []string{
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
	"syslog", "settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64",
	"adjtimex", "stime",
	"sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "nfsservctl", "uselib",
	"sysfs", "_sysctl",
}

// CheckedCalls are the system calls that the filter of a session checks by their arguments, sorted.
func CheckedCalls(may Openings) []string {
	calls := []string{
		"clone", "clone3", "fadvise64", "fcntl", "ioctl", "mknod", "mknodat", "renameat2", "sendmmsg",
		"sendmsg", "sendto", "setsockopt", "socket", "socketpair", "unshare",
	}
	if !may.Filters {
		calls = append(calls, "prctl", "seccomp")
	}
	slices.Sort(calls)
	return calls
}
