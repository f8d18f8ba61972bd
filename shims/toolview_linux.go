package shims

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/landlock"
)

// stageAt is where the view is made, in this process's own mount namespace.
const stageAt = "/tmp"

// viewOptions bound the directories that lead to the trees.
const viewOptions = "mode=755,size=64k,nr_inodes=4k"

// enterView makes the view, becomes the chat, and gives up every system call that the file tools do not
// make: no socket, no exec, no signal to another process.
func enterView(v *plan.ToolView) error {
	if err := buildView(v); err != nil {
		return fmt.Errorf("cannot make the view of a file tool: %w", err)
	}
	unix.Umask(0o077)
	if err := becomeChat(v); err != nil {
		return fmt.Errorf("cannot become the chat: %w", err)
	}
	return landlock.AllowCalls(toolCalls)
}

func buildView(v *plan.ToolView) error {
	unix.Umask(0) // the chat passes the directories that lead to the trees
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	trees := make([]int, len(v.Trees))
	for i, t := range v.Trees { // first of all: what is mounted next hides some of them
		var err error
		if trees[i], err = openTree(t); err != nil {
			return err
		}
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("chatd", stageAt, "tmpfs", flags, viewOptions); err != nil {
		return err
	}
	if err := os.Mkdir(stageAt+"/proc", 0o555); err != nil {
		return err
	}
	// Without the host's counters (proc(5), subset=pid).
	if err := unix.Mount("proc", stageAt+"/proc", "proc", flags, "subset=pid"); err != nil {
		return fmt.Errorf("cannot mount proc: %w", err)
	}
	for i := range v.Trees {
		if err := attachTree(v, i, trees[i]); err != nil {
			return err
		}
	}
	return enterStage(flags)
}

// openTree clones the mounts of one tree, with those in it.
func openTree(t chat.Exposed) (int, error) {
	const clone = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE
	fd, err := unix.OpenTree(unix.AT_FDCWD, t.Source, clone)
	if err != nil {
		return -1, fmt.Errorf("cannot open %s: %w", chat.Quote(t.Source), err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if t.Mode == chat.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	if err != nil {
		return -1, fmt.Errorf("cannot bound the mount of %s: %w", chat.Quote(t.Source), err)
	}
	return fd, nil
}

// attachTree mounts a tree at its place. In the tree of another one the chat may have removed the place
// or put a link there: then the tree is left out, and no link is followed.
func attachTree(v *plan.ToolView, i, tree int) error {
	t := v.Trees[i]
	inside := slices.ContainsFunc(v.Trees[:i], func(o chat.Exposed) bool {
		return chat.Within(t.Target, o.Target)
	})
	if !inside {
		if err := makePlace(stageAt+t.Target, t.File); err != nil {
			return err
		}
	}
	at, err := unix.Openat2(unix.AT_FDCWD, stageAt+t.Target, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err == nil {
		const opened = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
		err = unix.MoveMount(tree, "", at, "", opened)
		_ = unix.Close(at) // a path
	}
	for _, gone := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EINVAL} {
		if inside && errors.Is(err, gone) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("cannot mount %s: %w", chat.Quote(t.Target), err)
	}
	return unix.Close(tree)
}

// makePlace makes a directory, or a file, to mount on.
func makePlace(name string, file bool) error {
	if !file {
		return os.MkdirAll(name, 0o755)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, 0o444))
}

// enterStage makes the stage the root and leaves the host's tree (pivot_root(2)).
func enterStage(flags uintptr) error {
	err := unix.Chdir(stageAt)
	if err == nil {
		err = unix.PivotRoot(".", ".")
	}
	if err == nil {
		err = unix.Unmount(".", unix.MNT_DETACH)
	}
	if err == nil {
		err = unix.Chdir("/")
	}
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, "")
	}
	if err != nil {
		return fmt.Errorf("cannot leave the tree of the host: %w", err)
	}
	return nil
}

// becomeChat makes every thread the chat's, without capabilities, and its memory nobody else's.
func becomeChat(v *plan.ToolView) error {
	if err := setLimits(plan.Plan{ProcessLimits: v.Limits}); err != nil {
		return err
	}
	id := int(v.UID)
	if id == 0 {
		return chat.Invalid("its uid is 0")
	}
	err := syscall.Setgroups([]int{id})
	if err == nil {
		err = syscall.Setresgid(id, id, id)
	}
	if err == nil {
		err = syscall.Setresuid(id, id, id)
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	return err
}

// toolCalls are the system calls of the file tools and of the Go runtime. Names that an
// architecture lacks are left out.
var toolCalls = []string{
	"mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore", "membarrier",
	"clone", "clone3", "set_robust_list", "rseq", "futex", "exit", "exit_group", "gettid",
	"getpid", "geteuid", "getuid", "tgkill", "sched_yield", "sched_getaffinity",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday",
	"timer_create", "timer_settime", "timer_delete", "setitimer", "getrandom", "prctl",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "pipe2",
	"openat", "openat2", "getdents64", "fstat", "newfstatat", "statx", "readlinkat", "readlink",
	"faccessat", "faccessat2", "lseek", "fcntl", "close", "dup", "dup3", "read", "write", "pread64",
	"pwrite64", "readv", "writev", "flock", "fsync", "fdatasync", "ftruncate", "fallocate",
	"fchmod", "fchmodat", "mkdirat", "unlinkat", "renameat2", "copy_file_range", "sendfile",
	"splice", "uname", "getrlimit", "prlimit64",
}
