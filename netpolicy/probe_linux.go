package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// probeTimeout is how long a probe waits for an answer before it counts as none.
const probeTimeout = 5 * time.Second

// Probe tries the wall [chat.LayerEgress] as ProbeUID and says what came: it sends to addresses that
// exist nowhere (RFC 5737, RFC 3849), and to a listener of root on loopback. Nothing is sent
// outside before both families' jumps were seen in their place.
func (t *Table) Probe() chat.Layer {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := chat.Layer{Name: chat.LayerEgress, State: chat.LayerOff, By: "iptables owner match", At: time.Now()}
	found, err := t.drift()
	if err != nil {
		l.Probe, l.Fix = "nothing was sent: "+err.Error(), "make iptables -S work for chatd"
		return l
	}
	if len(found) > 0 {
		l.Probe, l.Fix = "nothing was sent, because the rules are not as written: "+strings.Join(found,
			" "), "apply the policies again"
		return l
	}
	l.State, l.Fix = chat.LayerUnknown, "give the host a route, or lo its address: nothing was refused"
	for _, try := range []attempt{{"192.0.2.1", 443, false}, {"192.0.2.1", 53, true},
		{"2001:db8::1", 443, false}, {"2001:db8::1", 53, true}} {
		tried(&l, try.String(), sys.AsUID(t.opts.ProbeUID, try.send))
	}
	t.probeLoopback(&l)
	return l
}

// probeLoopback connects to a server of root. A session does not share this loopback: what comes is
// a process of the uid outside of it.
func (t *Table) probeLoopback(l *chat.Layer) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		tried(l, host+" to a server of root:", t.probeListener(host))
	}
}

// tried adds what came of one try. The wall stands if something was refused, and nothing got through.
func tried(l *chat.Layer, what string, err error) {
	l.Probe = strings.TrimPrefix(fmt.Sprintf("%s, %s %s", l.Probe, what, answer(err)), ", ")
	switch {
	case refused(err) && l.State == chat.LayerUnknown:
		l.State, l.Fix = chat.LayerOn, ""
	case !refused(err) && !nowhere(err):
		l.State, l.Fix = chat.LayerOff, fixAccept
	}
}

// fixAccept is what to do where something gets through.
const fixAccept = "look for a rule that accepts chats before the chain CHATD"

// probeListener connects as ProbeUID to a fresh listener of root.
func (t *Table) probeListener(host string) error {
	addr := netip.MustParseAddr(host)
	fd, port, err := listen(addr)
	if err != nil {
		return err
	}
	err = sys.AsUID(t.opts.ProbeUID, attempt{host, port, false}.send)
	return errors.Join(err, unix.Close(fd))
}

func listen(addr netip.Addr) (fd, port int, err error) {
	fd, err = socket(addr, false)
	if err != nil {
		return -1, 0, err
	}
	if err = errors.Join(unix.Bind(fd, sockaddr(addr, 0)), unix.Listen(fd, 4)); err != nil {
		return -1, 0, errors.Join(fmt.Errorf("cannot listen on %s: %w", addr, err), unix.Close(fd))
	}
	name, err := unix.Getsockname(fd)
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return fd, a.Port, nil
	case *unix.SockaddrInet6:
		return fd, a.Port, nil
	}
	return -1, 0, errors.Join(fmt.Errorf("cannot learn the port of a listener on %s: %w", addr, err),
		unix.Close(fd))
}

func socket(addr netip.Addr, udp bool) (int, error) {
	domain, kind := unix.AF_INET6, unix.SOCK_STREAM
	if addr.Is4() {
		domain = unix.AF_INET
	}
	if udp {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot make a socket for %s: %w", addr, err)
	}
	return fd, nil
}

func sockaddr(addr netip.Addr, port int) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: addr.As16(), Port: port}
}

// attempt is one thing to send, by the calling thread's uid.
type attempt struct {
	host string
	port int
	udp  bool
}

func (a attempt) String() string {
	if a.udp {
		return a.host + " by UDP"
	}
	return a.host + " by TCP"
}

// send connects, or sends one empty datagram. nil is an answer, or with UDP that
// the datagram left.
func (a attempt) send() (err error) {
	addr := netip.MustParseAddr(a.host)
	fd, err := socket(addr, a.udp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if a.udp {
		return unix.Sendto(fd, nil, 0, sockaddr(addr, a.port))
	}
	err = unix.Connect(fd, sockaddr(addr, a.port))
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	return await(fd)
}

// await is what became of a connection under way; ETIMEDOUT after its timeout.
func await(fd int) error {
	ready, deadline := 0, time.Now().Add(probeTimeout)
	for ready == 0 {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("cannot wait for a connection: %w", err)
		}
		ready = max(n, 0)
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("cannot ask what became of a connection: %w", err)
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

// refused are the answers of a wall: a reset for TCP, EPERM for the rest, or the
// EACCES that Linux makes of ICMPv6 "administratively prohibited".
func refused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// nowhere are the answers of a host without a route, or without an address to send from.
func nowhere(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EADDRNOTAVAIL) ||
		errors.Is(err, unix.EAFNOSUPPORT)
}

func answer(err error) string {
	switch {
	case err == nil:
		return "got through"
	case refused(err):
		return "refused"
	case nowhere(err):
		return "has no route"
	case errors.Is(err, unix.ETIMEDOUT):
		return "got no answer"
	}
	return err.Error()
}
