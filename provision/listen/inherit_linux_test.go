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
)

// handedOver is a socket as systemd hands it over: bound, mode 0600, and also held by another
// listener.
func handedOver(t *testing.T, path string) (f *os.File, holder *net.UnixListener) {
	t.Helper()
	holder, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	holder.SetUnlinkOnClose(false)
	t.Cleanup(func() { holder.Close() })
	f, err = holder.File()
	if err := errors.Join(err, os.Chmod(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	return f, holder
}

// The socket is opened as Listen's is, answers, locks out a second daemon, and
// stays when the daemon ends.
func TestInherit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f, _ := handedOver(t, path)
	l, err := Inherit(f, path)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != socketMode {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("read something of nobody")
	}
	if _, err := Unix(path); !errors.Is(err, chat.ErrBusy) {
		t.Errorf("a second daemon: %v", err)
	}
	if err := errors.Join(c.Close(), l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "handed over")
}

func TestInheritRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
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
			if err := c.file.Close(); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("the descriptor was kept: %v", err)
			}
		})
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made at the path: %v", err)
	}
}

func TestInheritWaitsForNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f, _ := handedOver(t, path)
	lock, err := lockSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := Inherit(f, path); !errors.Is(err, chat.ErrBusy) {
		t.Errorf("beside another daemon: %v", err)
	}
}
