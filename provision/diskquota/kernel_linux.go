package diskquota

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// kernel are the calls about user quotas of the file system that a directory lies on.
type kernel interface {
	// device is the number of the file system.
	device(dir string) (uint64, error)
	// pool is what the file system takes its space from, maybe with others.
	pool(dir string) (string, error)
	// enforces reports whether limits are enforced. The error wraps [errors.ErrUnsupported] if the
	// file system counts nothing.
	enforces(dir string) (bool, error)
	enable(dir string) error
	get(dir string, uid uint32) (dqblk, error)
	set(dir string, uid uint32, b dqblk) error
}

// dqblk is struct if_dqblk of linux/quota.h. Hard and soft limits of space are in KiB.
type dqblk struct {
	hardKiB, softKiB, bytes         uint64
	hardInodes, softInodes, inodes  uint64
	bytesGraceEnds, inodesGraceEnds uint64
	valid                           uint32
	_                               uint32
}

// quotaStat begins as struct fs_quota_stat of linux/dqblk_xfs.h, and is not shorter.
type quotaStat struct {
	version int8
	flags   uint16
	_       [124]byte
}

// The commands of quotactl(2) that are used here, for quotas of users.
const (
	cmdOn   = 0x800002 << 8
	cmdGet  = 0x800007 << 8
	cmdSet  = 0x800008 << 8
	cmdStat = ('X'<<8 + 5) << 8

	flagEnforced = 1 << 1 // FS_QUOTA_UDQ_ENFD
	validLimits  = 1<<0 | 1<<2
)

// linux is the kernel of this host.
type linux struct{}

// call is quotactl_fd(2), since Linux 5.14: by a directory, not by the device, of which a service
// may see none.
func (linux) call(dir string, cmd uintptr, uid uint32, arg unsafe.Pointer) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot look for a quota: %w", err)
	}
	defer f.Close()
	_, _, errno := unix.Syscall6(
		unix.SYS_QUOTACTL_FD, f.Fd(), cmd, uintptr(uid), uintptr(arg), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (linux) device(dir string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	return st.Dev, err
}

func (linux) pool(dir string) (string, error) { return sys.Pool(dir) }

func (k linux) enforces(dir string) (bool, error) {
	var s quotaStat
	err := k.call(dir, cmdStat, 0, unsafe.Pointer(&s))
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTBLK) || errors.Is(err, unix.ENODEV) {
		return false, fmt.Errorf("the file system of %s has no user quotas: %w",
			dir, errors.ErrUnsupported)
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the state of quotas in %s: %w", dir, err)
	}
	return s.flags&flagEnforced != 0, nil
}

func (k linux) enable(dir string) error {
	if err := k.call(dir, cmdOn, 0, nil); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("cannot turn on user quotas in %s: %w", dir, err)
	}
	return nil
}

func (k linux) get(dir string, uid uint32) (b dqblk, err error) {
	err = k.call(dir, cmdGet, uid, unsafe.Pointer(&b))
	if errors.Is(err, unix.ENOENT) { // XFS: the uid never had anything
		return dqblk{}, nil
	}
	if err != nil {
		return dqblk{}, fmt.Errorf("cannot read the quota of uid %d in %s: %w", uid, dir, err)
	}
	return b, nil
}

func (k linux) set(dir string, uid uint32, b dqblk) error {
	b.valid = validLimits
	if err := k.call(dir, cmdSet, uid, unsafe.Pointer(&b)); err != nil {
		return fmt.Errorf("cannot set the quota of uid %d in %s: %w", uid, dir, err)
	}
	return nil
}
