package listen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// socketMode lets root and the groups connect, which on a socket is the write bit.
const socketMode = 0o660

// listener owns the socket at path and the lock beside it.
type listener struct {
	*net.UnixListener
	path string
	ino  uint64 // 0, which no file has: systemd owns the socket, and Close leaves it
	lock *os.File
	once sync.Once
	err  error
}

// Unix makes the unix socket at path, for root and the groups of gids. The first owns it, the
// others get an entry in its access list (acl(5)). The directory of path must exist and be writable
// by root alone.
//
// It is safe against a second daemon: a lock on path+".lock" (flock(2), which the kernel ends with
// the process) is held until Close, and a socket that answers is never taken away even without the
// lock; both give [chat.ErrBusy]. The socket that a killed daemon left is replaced. It is bound
// aside in a directory of mode 0700, given its mode and groups, and renamed to path. So no user can
// connect while it has the wrong mode, and path, once it names a socket, always does.
func Unix(path string, gids ...uint32) (net.Listener, error) {
	lock, err := lockSocket(path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	l, err := listen(path, gids)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, errors.Join(err, lock.Close()))
	}
	l.lock = lock
	return l, nil
}

// Inherit takes over a listening socket that another process bound to path, as
// systemd does for a socket unit (sd_listen_fds(3)). It requires a unix stream
// socket, and refuses another kind or another path. It sets the mode and groups
// that [Unix] sets, and holds the same lock; Close leaves the socket. It owns f.
func Inherit(f *os.File, path string, gids ...uint32) (net.Listener, error) {
	l, err := inherit(f, path, gids)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot use the socket that was handed over: %w", err)
	}
	return l, nil
}

func inherit(f *os.File, path string, gids []uint32) (*listener, error) {
	if err := checkInherited(int(f.Fd()), path); err != nil {
		return nil, err
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	if err := letIn(path, gids); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	u := l.(*net.UnixListener) // checkInherited has seen that it is one
	u.SetUnlinkOnClose(false)
	return &listener{UnixListener: u, path: path, lock: lock}, nil
}

// checkInherited asks the kernel what fd is (socket(7), SO_DOMAIN and so on).
func checkInherited(fd int, path string) error {
	for _, o := range []struct {
		option, want int
		what         string
	}{
		{unix.SO_DOMAIN, unix.AF_UNIX, "a unix socket"}, {unix.SO_TYPE, unix.SOCK_STREAM, "a stream socket"},
		{unix.SO_ACCEPTCONN, 1, "a socket that listens (Accept=no)"},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option)
		if err != nil {
			return fmt.Errorf("cannot ask what it is: %w", err)
		}
		if got != o.want {
			return chat.Invalid("it is not %s: want ListenStream=%s", o.what, path)
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("cannot ask for its path: %w", err)
	}
	if a, ok := name.(*unix.SockaddrUnix); !ok || a.Name != path {
		return chat.Invalid("it is not bound to %s: %+v", path, name)
	}
	return nil
}

// Close removes the socket, if path still names this one, and releases the lock.
// The lock file stays: without it two daemons could lock two files.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.err = errors.Join(l.UnixListener.Close(), l.remove(), l.lock.Close())
	})
	return l.err
}

func (l *listener) remove() error {
	ino, err := inode(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && ino != l.ino {
		return nil
	}
	if err == nil {
		err = os.Remove(l.path)
	}
	if err != nil {
		return fmt.Errorf("cannot remove the socket: %w", err)
	}
	return nil
}

func lockSocket(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open its lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another chatd holds it: %w", chat.ErrBusy)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", f.Name(), errors.Join(err, f.Close()))
	}
	return f, nil
}

func listen(path string, gids []uint32) (_ *listener, err error) {
	if err := checkFree(path); err != nil {
		return nil, err
	}
	aside, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("cannot make a directory aside: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(aside)) }()
	tmp := filepath.Join(aside, "s")
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot bind: %w", err)
	}
	// The name changes; Close removes the right one.
	u.SetUnlinkOnClose(false)
	l := &listener{UnixListener: u, path: path}
	if err := l.place(tmp, gids); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return l, nil
}

func (l *listener) place(tmp string, gids []uint32) (err error) {
	if err := letIn(tmp, gids); err != nil {
		return err
	}
	if l.ino, err = inode(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, l.path); err != nil {
		return fmt.Errorf("cannot put the socket in its place: %w", err)
	}
	return nil
}

// checkFree accepts nothing at path, or a socket that does not answer.
func checkFree(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot look at it: %w", err)
	case fi.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("cannot replace it: it is not a socket: %w", chat.ErrExists)
	}
	c, err := net.Dial("unix", path)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("somebody answers: %w", errors.Join(chat.ErrBusy, c.Close()))
	}
	return fmt.Errorf("cannot replace it: %w", err)
}

func letIn(path string, gids []uint32) error {
	owner := 0
	if len(gids) > 0 {
		owner = int(gids[0])
	}
	if os.Geteuid() != 0 && len(gids) == 0 {
		owner = os.Getegid()
	}
	if err := os.Chown(path, -1, owner); err != nil {
		return fmt.Errorf("cannot give the socket to group %d: %w", owner, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return fmt.Errorf("cannot set the socket's mode: %w", err)
	}
	if len(gids) < 2 {
		return nil
	}
	if err := unix.Setxattr(path, "system.posix_acl_access", socketACL(gids[1:]), 0); err != nil {
		return fmt.Errorf("cannot let groups %v in by an access list: %w", gids[1:], err)
	}
	return nil
}

// socketACL is the kernel's form of user::rw-,group::rw-,group:GID:rw-…,
// mask::rw-,other::--- (linux/posix_acl_xattr.h; entries ordered by tag and id).
func socketACL(gids []uint32) []byte {
	const (
		version                               = 2
		userObj, groupObj, group, mask, other = 0x01, 0x04, 0x08, 0x10, 0x20
		none                                  = 0xffffffff
	)
	entry := func(b []byte, tag, perm uint16, id uint32) []byte {
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, perm)
		return binary.LittleEndian.AppendUint32(b, id)
	}
	b := binary.LittleEndian.AppendUint32(nil, version)
	b = entry(b, userObj, 6, none)
	b = entry(b, groupObj, 6, none)
	for _, gid := range slices.Compact(slices.Sorted(slices.Values(gids))) {
		b = entry(b, group, 6, gid)
	}
	b = entry(b, mask, 6, none)
	return entry(b, other, 0, none)
}

func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	return st.Ino, nil
}
