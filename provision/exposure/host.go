package exposure

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// Host is the host's file tree, in which chatd looks up what sessions may see. A lookup goes
// from the root, name by name, follows no link, and passes only directories that only root may
// write to. So bubblewrap, which opens the same path as the chat, finds the file that chatd
// checked.
type Host struct {
	root   *os.File
	mounts []sys.Mount
	// own are chatd's directories, which must not be exposed, even in part.
	own []string
	// uid is the user that must be able to reach each path; 0 means no such check.
	uid uint32
	// searches has recent results, which serve in place of new ones; nil if none may.
	searches *Searches
}

// errNotThere reports that a directory of the host has no such name.
var errNotThere = errors.New("it is not there")

// hostPath describes a path of the host.
type hostPath struct {
	path string
	file bool
	// writers names the users besides root that may write to a directory; "" if none may.
	writers string
}

// Open opens the tree that sessions are made from. With systemd that is the tree of process
// 1: chatd's own may be hardened. Recent results of searches serve, unless searches is nil.
func Open(units bool, own []string, uid uint32, searches *Searches) (*Host, error) {
	root, mounts := "/", "/proc/self/mountinfo"
	if units {
		root, mounts = "/proc/1/root", "/proc/1/mountinfo"
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the root of the host: %w", err)
	}
	h := &Host{root: os.NewFile(uintptr(fd), "/"), own: own, uid: uid, searches: searches}
	if h.mounts, err = sys.ReadMounts(mounts); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Close closes the tree.
func (h *Host) Close() error { return h.root.Close() }

// source checks whether the path p may be exposed, and returns its description, or the reason
// why not.
func (h *Host) source(p string) (hostPath, error) {
	if err := h.mayExpose(p); err != nil {
		return hostPath{path: p}, err
	}
	fd, f, err := h.open(p)
	if err != nil && f.path != p {
		err = fmt.Errorf("cannot reach %s: %w", chat.Quote(p), err)
	}
	if err != nil {
		return f, err
	}
	defer unix.Close(fd)
	return f, kernelFS(fd, p)
}

// open opens a directory or a regular file with O_PATH, and describes it.
func (h *Host) open(p string) (int, hostPath, error) {
	at, err := unix.FcntlInt(h.root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, hostPath{}, fmt.Errorf("cannot open the root of the host: %w", err)
	}
	f, err := look(at, "/")
	for rest := strings.Split(strings.Trim(p, "/"), "/"); err == nil && len(rest) > 0 &&
		rest[0] != ""; rest = rest[1:] {
		at, f, err = f.step(at, rest[0])
	}
	if err != nil {
		unix.Close(at)
		return -1, f, err
	}
	return at, f, nil
}

// step opens a name in the directory at. On success it closes at.
func (f hostPath) step(at int, name string) (int, hostPath, error) {
	p := path.Join(f.path, name)
	switch {
	case f.file:
		return at, hostPath{path: p}, chat.Invalid("cannot use %s: %s is a file", chat.Quote(p),
			chat.Quote(f.path))
	case f.writers != "":
		return at, hostPath{path: p},
			chat.Invalid("cannot use %s: %s may write to %s, and so swap what the name leads to; want directories on the way that only root may write to",
				chat.Quote(p), f.writers, chat.Quote(f.path))
	}
	next, err := openName(at, name, p)
	if err != nil {
		return at, hostPath{path: p}, err
	}
	unix.Close(at)
	g, err := look(next, p)
	return next, g, err
}

func openName(at int, name, p string) (int, error) {
	fd, err := sys.OpenBeneath(at, name, unix.O_PATH)
	switch {
	case errors.Is(err, unix.ENOENT):
		return -1, chat.Invalid("cannot use %s: %w", chat.Quote(p), errNotThere)
	case err != nil:
		return -1, fmt.Errorf("cannot use %s: %w", chat.Quote(p), err)
	}
	return fd, nil
}

// look describes an open file. The error for a link names its target.
func look(fd int, p string) (hostPath, error) {
	f := hostPath{path: p}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return f, fmt.Errorf("cannot look at %s: %w", chat.Quote(p), err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		f.writers = sys.WritersOf(st)
	case unix.S_IFREG:
		f.file = true
	case unix.S_IFLNK:
		b := make([]byte, chat.MaxPath)
		n, _ := unix.Readlinkat(fd, "", b)
		return f, chat.Invalid("cannot use %s: it is a link to %s; want the path that it leads to",
			chat.Quote(p), chat.Quote(string(b[:max(n, 0)])))
	case unix.S_IFSOCK:
		return f, chat.Invalid("cannot use %s: it is a socket, and who reaches it acts through the one who listens; want a directory or a regular file", chat.Quote(p))
	default:
		return f, chat.Invalid("cannot use %s: it is a fifo or a device; want a directory or a regular file", chat.Quote(p))
	}
	return f, nil
}

// kernelFiles are the file systems that show the kernel, by their magic number in statfs(2).
var kernelFiles = map[int64]string{
	unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs", unix.CGROUP_SUPER_MAGIC: "cgroup",
	unix.CGROUP2_SUPER_MAGIC: "cgroup2",
	unix.DEBUGFS_MAGIC:       "debugfs", unix.TRACEFS_MAGIC: "tracefs", unix.SECURITYFS_MAGIC: "securityfs",
	unix.BPF_FS_MAGIC:       "bpf",
	unix.DEVPTS_SUPER_MAGIC: "devpts", 0x19800202: "mqueue", unix.EFIVARFS_MAGIC: "efivarfs",
	0x42494e4d: "binfmt_misc",
}

func kernelFS(fd int, p string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("cannot look at the file system of %s: %w", chat.Quote(p), err)
	}
	if name, ok := kernelFiles[int64(st.Type)]; ok {
		return chat.Invalid("cannot use %s: it is of a %s, which shows the host's kernel", chat.Quote(p),
			name)
	}
	return nil
}

// passable tries, as the chat, to open each path by name, as bubblewrap will. A descriptor in
// place of the name would not help: bubblewrap looks up the descriptor's name too.
func (h *Host) passable(paths []string) error {
	if h.uid == 0 || len(paths) == 0 {
		return nil
	}
	root := int(h.root.Fd())
	return sys.AsUID(h.uid, func() error {
		for _, p := range paths {
			fd, err := sys.OpenBeneath(root, strings.TrimLeft(p, "/"), unix.O_PATH)
			if err != nil {
				return chat.Invalid("cannot use %s: a chat may not pass the directories on the way (%w); open them with chmod o+x, or mount it where others may pass", chat.Quote(p), err)
			}
			unix.Close(fd)
		}
		return nil
	})
}
