package sys

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
)

// ownerOf is the uid and gid of a socket's inode, which are the fsuid and fsgid of its maker.
func ownerOf(t *testing.T, fd int) (uid, gid uint32) {
	t.Helper()
	var st unix.Stat_t
	expect.NoError(t, unix.Fstat(fd, &st))
	return st.Uid, st.Gid
}

// TestSocketOf makes sockets in so many goroutines that each thread has made one of another uid
// before. Sockets that are made plainly meanwhile, and afterwards, must be root's.
func TestSocketOf(t *testing.T) {
	needsRoot(t)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			uid, gid := 2013265900+uint32(i), 2013266900+uint32(i)
			domain := []int{unix.AF_INET, unix.AF_INET6}[i%2]
			typ := []int{unix.SOCK_STREAM, unix.SOCK_DGRAM}[i/2%2]
			fd, err := SocketOf(uid, gid, domain, typ)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(fd)
			if u, g := ownerOf(t, fd); u != uid || g != gid {
				t.Errorf("the socket of %d:%d is of %d:%d", uid, gid, u, g)
			}
			checkFlags(t, fd, typ)
			checkPlain(t)
		})
	}
	all.Wait()
	expect.Equal(t, unix.Geteuid(), 0, "the process is of uid")
}

func checkFlags(t *testing.T, fd, typ int) {
	t.Helper()
	status, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	expect.True(t, err == nil && status&unix.O_NONBLOCK != 0,
		"status flags %#x, %v: want O_NONBLOCK", status, err)
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	expect.True(t, err == nil && flags&unix.FD_CLOEXEC != 0,
		"descriptor flags %#x, %v: want FD_CLOEXEC", flags, err)
	if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || got != typ {
		t.Errorf("type %d, %v: want %d", got, err, typ)
	}
}

// checkPlain makes a socket without setting anything.
func checkPlain(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	if u, g := ownerOf(t, fd); u != 0 || g != 0 {
		t.Errorf("a plain socket is of %d:%d", u, g)
	}
}

// TestSocketOfRestores looks at one thread: after a call that succeeds, after one that fails in
// socket(2), and after one whose ids are none.
func TestSocketOfRestores(t *testing.T) {
	needsRoot(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, x := range []struct {
		name     string
		uid, gid uint32
		domain   int
		want     error
	}{
		{"a socket", 2013265900, 2013266900, unix.AF_INET, nil},
		{"no such domain", 2013265900, 2013266900, 255, unix.EAFNOSUPPORT},
		{"no uid", keepID, 2013266900, unix.AF_INET, unix.EPERM},
		{"no gid", 2013265900, keepID, unix.AF_INET, unix.EPERM},
	} {
		fd, restored, err := socketOf(x.uid, x.gid, x.domain, unix.SOCK_STREAM)
		expect.True(t, errors.Is(err, x.want) && restored && (fd >= 0) == (x.want == nil),
			"%s: fd %d, restored %v, %v, want %v", x.name, fd, restored, err, x.want)
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		u, g := fsID(unix.SYS_SETFSUID, keepID), fsID(unix.SYS_SETFSGID, keepID)
		expect.True(t, u == 0 && g == 0, "%s: the thread has fsuid %d and fsgid %d", x.name, u, g)
		checkPlain(t)
	}
}

// TestSocketOfWithoutRights: a thread that may not take the ids makes no socket of its own ones.
func TestSocketOfWithoutRights(t *testing.T) {
	needsRoot(t)
	err := AsUID(2013265900, func() error {
		fd, restored, err := socketOf(2013265901, 2013265901, unix.AF_INET, unix.SOCK_STREAM)
		expect.True(t, fd < 0 && restored, "fd %d, restored %v", fd, restored)
		return err
	})
	expect.True(t, errors.Is(err, unix.EPERM), "%v, want EPERM", err)
}
