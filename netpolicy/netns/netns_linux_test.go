package netns

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// namespace is the network of a process as a session has it: in a user namespace of its own.
func namespace(t testing.TB) *Namespace {
	t.Helper()
	must.Root(t, "to join network namespaces")
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
	}
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p := must.Get(sys.OpenProcess(sys.Process{PID: cmd.Process.Pid}))(t)
	n := must.Get(Open(p))(t)
	t.Cleanup(func() { expect.NoError(t, errors.Join(n.Close(), p.Close())) })
	return n
}

// listening is a furnished namespace with its two sockets.
func listening(t *testing.T) (n *Namespace, tcp net.Listener, udp *net.UDPConn) {
	t.Helper()
	n = namespace(t)
	if err := errors.Join(n.Configure(), n.Configure()); err != nil { // again changes nothing
		t.Fatal(err)
	}
	stream, datagram, err := n.Listen()
	must.Do(t, err)
	defer stream.Close()
	defer datagram.Close()
	if tcp, err = net.FileListener(stream); err != nil {
		t.Fatal(err)
	}
	conn := must.Get(net.FilePacketConn(datagram))(t)
	t.Cleanup(func() { expect.NoError(t, errors.Join(tcp.Close(), conn.Close())) })
	return n, tcp, conn.(*net.UDPConn)
}

// inside dials in the namespace.
func (n *Namespace) inside(t *testing.T, network, to string) (conn net.Conn, err error) {
	t.Helper()
	err = n.in(func() error {
		conn, err = net.DialTimeout(network, to, time.Minute)
		return err
	})
	return conn, err
}

func TestConnectionsTellWhereTheyGo(t *testing.T) {
	n, tcp, _ := listening(t)
	for _, to := range []string{"203.0.113.5:443", "10.1.2.3:22", "198.18.1.0:80",
		"169.254.169.254:80",
		"127.0.0.1:53", "[2001:db8::1]:443", "[fd63:6861:7464::100]:5432", "[::1]:53"} {
		conn, err := n.inside(t, "tcp", to)
		if err != nil {
			t.Errorf("to %s: %v", to, err)
			continue
		}
		got := must.Get(tcp.Accept())(t)
		at := got.LocalAddr().(*net.TCPAddr).AddrPort()
		if at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()); at.String() != to {
			t.Errorf("to %s arrives as %s", to, at)
		}
		expect.NoError(t, expect.Err(got.Write([]byte("back"))))
		b := make([]byte, 4)
		_, err = conn.Read(b)
		expect.True(t, err == nil && string(b) == "back", "from %s: %q, %v", to, b, err)
		expect.NoError(t, errors.Join(conn.Close(), got.Close()))
	}
}

// TestInsideStaysInside: what goes to loopback or to the session's own address is not redirected.
func TestInsideStaysInside(t *testing.T) {
	n, _, _ := listening(t)
	for _, at := range []string{"127.0.0.1", "127.9.9.9", "[::1]", Own4.String(),
		"[" + Own6.String() + "]"} {
		expect.Is(t, expect.Err(n.inside(t, "tcp", at+":443")), unix.ECONNREFUSED,
			"%s, where nobody listens", at)
	}
}

func TestDatagramsTellWhereTheyGo(t *testing.T) {
	n, _, udp := listening(t)
	for _, to := range []string{"203.0.113.5:123", "[2001:db8::1]:443", "127.0.0.1:53"} {
		conn := must.Get(n.inside(t, "udp", to))(t)
		expect.Is(t, expect.Err(conn.Write([]byte("ask"))), nil, "to %s", to)
		b, oob := make([]byte, 16), make([]byte, 256)
		size, oobn, _, from, err := udp.ReadMsgUDPAddrPort(b, oob)
		if err != nil || string(b[:size]) != "ask" {
			t.Fatalf("to %s: %q, %v", to, b[:size], err)
		}
		at, err := destination(oob[:oobn])
		expect.True(t, err == nil && at.String() == to, "to %s arrives as %s, %v", to, at, err)
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if at.Port() != Port {
			n.answer(t, conn, at, from)
		}
		expect.NoError(t, conn.Close())
	}
}

// answer sends from at to the connected socket that sent from from.
func (n *Namespace) answer(t *testing.T, conn net.Conn, at, from netip.AddrPort) {
	t.Helper()
	f := must.Get(n.Reply(at, from))(t)
	defer f.Close()
	expect.NoError(t, expect.Err(unix.Write(int(f.Fd()), []byte("answer"))))
	b := make([]byte, 16)
	if size, err := conn.Read(b); err != nil || string(b[:size]) != "answer" {
		t.Errorf("answer from %s: %q, %v", at, b[:size], err)
	}
}

// destination reads the control message of ip(7), IP_RECVORIGDSTADDR.
func destination(oob []byte) (netip.AddrPort, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		d := m.Data
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_ORIGDSTADDR:
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(d[4:8])),
				uint16(d[2])<<8|uint16(d[3])), nil
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_ORIGDSTADDR:
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(d[8:24])),
				uint16(d[2])<<8|uint16(d[3])), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("no destination in %x: %w", oob, err)
}

// TestListenTwice: who has the sockets keeps them.
func TestListenTwice(t *testing.T) {
	n, _, _ := listening(t)
	expect.Is(t, expect.Err(n.Listen()), unix.EADDRINUSE, "")
}

// TestListenAfterConnections: the port is free for the next listener when the last one is closed,
// whatever became of its connections.
func TestListenAfterConnections(t *testing.T) {
	n := namespace(t)
	stream, datagram, err := n.Listen()
	if err = errors.Join(err, n.Configure()); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.FileListener(stream)
	if err = errors.Join(err, stream.Close(), datagram.Close()); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"127.0.0.1:53", "[::1]:53", "203.0.113.5:53"} {
		conn := must.Get(n.inside(t, "tcp", to))(t)
		defer conn.Close()
		got, err := tcp.Accept()
		if err == nil {
			err = got.Close() // first, and so what waits (TIME_WAIT, FIN_WAIT2) is on this side
		}
		must.Do(t, err)
	}
	must.Do(t, tcp.Close())
	again, udp, err := n.Listen()
	must.Do(t, err)
	expect.NoError(t, errors.Join(again.Close(), udp.Close()))
}

// TestAnswerFromPort: who sends to port 53 of an address outside can be answered by a flow, which
// gets what that one socket sends there and nothing else.
func TestAnswerFromPort(t *testing.T) {
	n, _, udp := listening(t)
	for _, to := range []string{"203.0.113.5:53", "[2001:db8::1]:53"} {
		conn := must.Get(n.inside(t, "udp", to))(t)
		defer conn.Close()
		takes(t, conn, udp)
		at := netip.MustParseAddrPort(to)
		from := conn.LocalAddr().(*net.UDPAddr).AddrPort()
		f := must.Get(n.Reply(at, from))(t)
		reply, err := net.FilePacketConn(f)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		defer reply.Close()
		takes(t, conn, reply.(*net.UDPConn))
		expect.NoError(t, expect.Err(reply.(*net.UDPConn).Write([]byte("answer"))))
		b := make([]byte, 16)
		if size, err := conn.Read(b); err != nil || string(b[:size]) != "answer" {
			t.Errorf("%q, %v", b[:size], err)
		}
		for _, query := range []string{"127.0.0.1:53", "203.0.113.6:53", to, "[::1]:53"} {
			other := must.Get(n.inside(t, "udp", query))(t)
			defer other.Close()
			takes(t, other, udp)
		}
	}
}

// TestAnswerSamePort: a program that has a port for itself is answered from the same port of
// another address, with datagrams of any size, and what it sends goes on to come.
func TestAnswerSamePort(t *testing.T) {
	n, _, udp := listening(t)
	for _, c := range []struct{ network, to string }{{"udp4", "203.0.113.5:123"},
		{"udp", "203.0.113.5:123"}, {"udp6", "[2001:db8::1]:123"}} {
		at := netip.MustParseAddrPort(c.to)
		var conn *net.UDPConn
		must.Do(t, n.in(func() (err error) {
			conn, err = net.ListenUDP(c.network, &net.UDPAddr{Port: 123})
			return err
		}))
		own := netip.AddrPortFrom(Own4, 123)
		if at.Addr().Is6() {
			own = netip.AddrPortFrom(Own6, 123)
		}
		f := must.Get(n.Reply(at, own))(t)
		for _, size := range []int{0, 1, 1400, 60000} {
			must.Get(conn.WriteToUDPAddrPort([]byte("question"), at))(t)
			b := make([]byte, 1<<16)
			_ = udp.SetReadDeadline(time.Now().Add(time.Minute))
			got, from, err := udp.ReadFromUDPAddrPort(b)
			if err != nil || string(b[:got]) != "question" || from.Port() != 123 {
				t.Fatalf("%q from %v, %v", b[:got], from, err)
			}
			n := 8 + size
			header := []byte{0, 123, 0, 123, byte(n >> 8), byte(n), 0, 0}
			must.Get(unix.Write(int(f.Fd()), append(header, bytes.Repeat([]byte("x"), size)...)))(t)
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			got, from, err = conn.ReadFromUDPAddrPort(b)
			from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			expect.True(t, err == nil && got == size && from == at,
				"%d bytes from %v, %v: want %d from %v", got, from, err, size, at)
		}
		expect.Is(t, expect.Err(unix.Read(int(f.Fd()), make([]byte, 16))), unix.EAGAIN,
			"what the program sends waits in it")
		err := unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		expect.Is(t, err, unix.EPERM, "its filter can be removed")
		expect.NoError(t, errors.Join(f.Close(), conn.Close()))
	}
}

// takes sends a datagram by one socket, and expects it at the other.
func takes(t *testing.T, from net.Conn, at *net.UDPConn) {
	t.Helper()
	text := from.LocalAddr().String() + " to " + from.RemoteAddr().String()
	must.Get(from.Write([]byte(text)))(t)
	must.Do(t, at.SetReadDeadline(time.Now().Add(time.Minute)))
	b := make([]byte, 256)
	if size, _, err := at.ReadFromUDPAddrPort(b); err != nil || string(b[:size]) != text {
		t.Errorf("%q, %v, want %q", b[:size], err, text)
	}
}

// TestPortIsRoots: a program without a capability takes the port neither before the listeners nor
// beside them, also not by SO_REUSEADDR or SO_REUSEPORT.
func TestPortIsRoots(t *testing.T) {
	n := namespace(t)
	must.Do(t, n.Configure())
	n.refusesPort(t)
	tcp, udp, err := n.Listen()
	must.Do(t, err)
	defer tcp.Close()
	defer udp.Close()
	n.refusesPort(t)
}

// refusesPort tries to bind [Port] as a user.
func (n *Namespace) refusesPort(t *testing.T) {
	t.Helper()
	expect.NoError(t, n.in(func() error {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			return e
		}
		return refusesPort()
	}))
}

// refusesPort is [Namespace.refusesPort] of the calling thread.
func refusesPort() (all error) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		for _, at := range []string{"0.0.0.0", "127.0.0.1", Own4.String(), "203.0.113.5"} {
			s, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			err = errors.Join(unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
			to := netip.AddrPortFrom(netip.MustParseAddr(at), Port)
			if got := unix.Bind(s, Sockaddr(to)); !errors.Is(got, unix.EACCES) {
				err = errors.Join(err, fmt.Errorf("bind %s: %v", to, got))
			}
			all = errors.Join(all, err, unix.Close(s))
		}
	}
	return all
}

// TestDescriptorsAreHeld: if a file is closed meanwhile, the number that [os.File.Fd] returned may
// be another file's when it is used. These packages use the numbers of shared files only inside of
// SyscallConn's Control, which keeps the file open.
func TestDescriptorsAreHeld(t *testing.T) {
	for _, dir := range []string{".", "../gateway", "../../internal/uplink"} {
		files, err := filepath.Glob(dir + "/*_linux.go")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if b, err := os.ReadFile(name); err != nil || bytes.Contains(b, []byte(".Fd()")) {
				t.Errorf("%s uses Fd, %v", name, err)
			}
		}
	}
}

// TestOpenRefusesTheHost: nothing is ever changed in chatd's own network.
func TestOpenRefusesTheHost(t *testing.T) {
	p := must.Get(sys.OpenProcess(sys.Process{PID: os.Getpid()}))(t)
	defer p.Close()
	expect.Is(t, expect.Err(Open(p)), chat.ErrInvalid, "")
}

func TestTry(t *testing.T) {
	namespace(t) // needs root
	expect.NoError(t, Try())
}
