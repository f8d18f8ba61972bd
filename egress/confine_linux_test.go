package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
	"github.com/chatd/chatd/test/expect"
)

// confinedEnv marks the second run of the test binary, which confines itself.
const confinedEnv = "CHATD_TEST_CONFINED"

func TestMain(m *testing.M) {
	if os.Getenv(confinedEnv) != "" {
		if err := confined(); err != nil {
			fmt.Println("FAIL", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestCannot: after Confine no thread can open, start, make a socket, trace or end anything.
func TestCannot(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), confinedEnv+"=1")
	out, err := cmd.CombinedOutput()
	expect.True(t, err == nil, "%v\n%s", err, out)
}

// TestCould: without Confine the acts of TestCannot are allowed.
func TestCould(t *testing.T) {
	for name, do := range acts() {
		err := do()
		expect.True(t, !errors.Is(err, unix.EPERM), "%s: %v", name, err)
	}
}

// acts are the attempts of a compromised chatd-egress.
func acts() map[string]func() error {
	socket := func(family, kind int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind, 0)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}
	}
	opens := func(name string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}
	}
	return map[string]func() error{
		"open a file":      opens("/etc/passwd", os.O_RDONLY),
		"write a file":     opens("/dev/null", os.O_WRONLY),
		"start a program":  func() error { return unix.Access("/bin/true", unix.X_OK) },
		"a unix socket":    socket(unix.AF_UNIX, unix.SOCK_STREAM),
		"a TCP socket":     socket(unix.AF_INET, unix.SOCK_STREAM),
		"a UDP socket":     socket(unix.AF_INET6, unix.SOCK_DGRAM),
		"end a process":    func() error { return unix.Kill(os.Getpid(), 0) },
		"trace a process":  func() error { return unix.PtraceAttach(1 << 22) }, // of nobody
		"make a namespace": func() error { return unix.Unshare(0) },
		"make a directory": func() error { return unix.Mkdir("/proc/x", 0o700) },
		"use a key": func() error {
			_, err := unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID,
				-3, 0, 0, 0)
			return err
		},
	}
}

// confined tries the acts, and then carries a connection between sockets of before: everything
// that a connection needs must be allowed.
func confined() error {
	sockets, err := madeBefore()
	if err != nil {
		return err
	}
	without := landlock.ABI() == 0
	missing, err := Confine()
	if err != nil {
		return err
	}
	if without != (len(missing) > 0) {
		return fmt.Errorf("it says that %v is missing", missing)
	}
	for name, do := range acts() {
		if err := do(); !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%s: %v, want EPERM", name, err)
		}
	}
	return sockets.carry()
}

// socketsBefore are what chatd-root would pass.
type socketsBefore struct {
	listener *net.TCPListener
	near     *os.File // unconnected
	far      *os.File // unconnected
}

func madeBefore() (s socketsBefore, err error) {
	if s.listener, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0,
		1)}); err != nil {
		return s, err
	}
	for _, f := range []**os.File{&s.near, &s.far} {
		fd, err := unix.Socket(unix.AF_INET,
			unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return s, err
		}
		*f = os.NewFile(uintptr(fd), "socket")
	}
	return s, nil
}

// connected returns both ends of a connection.
func (s socketsBefore) connected(f *os.File) (a, b *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	if err := connect(ctx, f, addrOf(s.listener.Addr())); err != nil {
		return nil, nil, err
	}
	c, err := fileConn[net.Conn](f)
	if err != nil {
		return nil, nil, err
	}
	b, err = s.listener.AcceptTCP()
	return c.(*net.TCPConn), b, err
}

func (s socketsBefore) carry() error {
	chats, client, err := s.connected(s.near)
	if err != nil {
		return err
	}
	server, outside, err := s.connected(s.far)
	if err != nil {
		return err
	}
	if err := client.SetKeepAliveConfig(keepAlive()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c := connection{&carried{n: &network{}, ctx: ctx, cancel: cancel}, client}
	go func() { _, _ = io.Copy(outside, outside); _ = outside.CloseWrite() }()
	ended := make(chan error, 1)
	go func() { ended <- c.relay(server) }()
	_ = chats.SetDeadline(time.Now().Add(guard))
	if _, err := io.WriteString(chats, "hello"); err != nil {
		return err
	}
	if err := chats.CloseWrite(); err != nil {
		return err
	}
	if b, err := io.ReadAll(chats); string(b) != "hello" || err != nil {
		return fmt.Errorf("%q, %w", b, err)
	}
	reset(outside)
	return <-ended
}
