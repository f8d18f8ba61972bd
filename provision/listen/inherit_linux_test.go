package listen

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// handedOver is a socket as systemd hands it over: bound, mode 0600, and also held by another
// listener.
func handedOver(t *testing.T, path string) (f *os.File, holder *net.UnixListener) {
	t.Helper()
	holder = must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path}))(t)
	holder.SetUnlinkOnClose(false)
	t.Cleanup(func() { holder.Close() })
	must.Do(t, os.Chmod(path, 0o600))
	return must.Get(holder.File())(t), holder
}

// The socket is opened as Listen's is, answers, locks out a second daemon, and
// stays when the daemon ends.
func TestInherit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f, _ := handedOver(t, path)
	l := must.Get(Inherit(f, path))(t)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != socketMode {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	c := must.Get(net.Dial("unix", path))(t)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("read something of nobody")
	}
	expect.Is(t, expect.Err(Unix(path)), chat.ErrBusy, "a second daemon")
	expect.NoError(t, errors.Join(c.Close(), l.Close(), l.Close()))
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket did not stay: %v", err)
	}
}

// fileOf makes a socket of a kind that systemd can be told to hand over.
func fileOf(t *testing.T, domain, kind int, at unix.Sockaddr, listens bool) *os.File {
	t.Helper()
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, at)
	}
	if err == nil && listens {
		err = unix.Listen(fd, 1)
	}
	must.Do(t, err)
	return os.NewFile(uintptr(fd), "handed over")
}

func TestInheritRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	file := must.Get(os.Open("/dev/null"))(t)
	local := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	for _, c := range []struct {
		name string
		file *os.File
		want string
	}{
		{"TCP", fileOf(t, unix.AF_INET, unix.SOCK_STREAM, local, true), "not a unix socket"},
		{"a datagram socket", fileOf(t, unix.AF_UNIX, unix.SOCK_DGRAM, &unix.SockaddrUnix{Name: path + "d"}, false), "not a stream socket"},
		{"a connection", fileOf(t, unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: path + "c"}, false), "not a socket that listens"},
		{"another path", fileOf(t, unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: path + "2"}, true), "not bound to " + path},
		{"an abstract name", fileOf(t, unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@chatd-test-" + filepath.Base(filepath.Dir(path))}, true), "not bound to " + path},
		{"a file", file, "cannot ask what it is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Inherit(c.file, path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			expect.Is(t, c.file.Close(), fs.ErrClosed, "the descriptor was kept")
		})
	}
	expect.Is(t, expect.Err(os.Lstat(path)), fs.ErrNotExist, "something was made at the path")
}

func TestInheritWaitsForNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f, _ := handedOver(t, path)
	lock := must.Get(lockSocket(path))(t)
	defer lock.Close()
	expect.Is(t, expect.Err(Inherit(f, path)), chat.ErrBusy, "beside another daemon")
}
