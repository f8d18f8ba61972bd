package netpolicy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// setSysctl sets a value of this network namespace until the test ends.
func setSysctl(t *testing.T, name, value string) {
	t.Helper()
	path := "/proc/sys/net/" + name
	was := run(t, "cat "+path)
	run(t, "echo "+value+" > "+path)
	t.Cleanup(func() { run(t, "echo "+was+" > "+path) })
}

// fastOpen sends "early" in the SYN.
func fastOpen(uid uint32, host string, port int) error {
	addr := netip.MustParseAddr(host)
	return sys.AsUID(uid, func() error {
		fd, err := testSocket(addr, "tcp")
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_NO_COOKIE, 1); err != nil {
			return err
		}
		if err := unix.Sendto(fd, []byte("early"), unix.MSG_FASTOPEN, sockaddr(addr, port)); err != nil {
			return err
		}
		_, err = unix.Read(fd, make([]byte, 16))
		return err
	})
}

func TestFastOpenCarriesNothing(t *testing.T) {
	needsRoot(t)
	setSysctl(t, "ipv4/tcp_fastopen", "1543") // 0x607: clients and every listener, without cookies
	for _, host := range []string{"127.0.0.1", "::1"} {
		table := newTable(t, hostTools)
		b := serve(t, nil, uidB, host, 0, "tcp")
		if err := fastOpen(uidA, host, b.port); err != nil || b.heard() != "early" {
			t.Errorf("without rules B heard %q before it answered: %v", b.heard(), err)
		}
		apply(t, table, testPolicy(t, 1))
		other, own := serve(t, nil, uidB, host, 0, "tcp"), serve(t, nil, uidA, host, 0, "tcp")
		if err := fastOpen(uidA, host, other.port); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ETIMEDOUT) && !errors.Is(err, unix.EINPROGRESS) {
			t.Errorf("A to B with data in the SYN: %v", err)
		}
		// B serves in order: its own question is answered after what came before.
		waitFor(t, func() bool { return ask(nil, uidB, host, other.port, "tcp") == "answered" })
		waitFor(t, func() bool { return strings.HasSuffix(other.heard(), "secret") })
		if got := other.heard(); strings.Contains(got, "early") {
			t.Errorf("B heard %q, want only its own secret", got)
		}
		if err := fastOpen(uidA, host, own.port); err != nil {
			t.Errorf("A to its own with data in the SYN: %v", err)
		}
		if err := table.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSYNCookiesOpenNothing(t *testing.T) {
	needsRoot(t)
	setSysctl(t, "ipv4/tcp_syncookies", "2")
	apply(t, newTable(t, hostTools), testPolicy(t, 1))
	for _, host := range []string{"127.0.0.1", "::1"} {
		b := serve(t, nil, uidB, host, 0, "tcp")
		root := serve(t, nil, 0, host, 0, "tcp")
		for _, port := range []int{b.port, root.port} {
			if got := ask(nil, uidA, host, port, "tcp"); got != "refused" {
				t.Errorf("A over %s: %s", host, got)
			}
		}
		if b.heard()+root.heard() != "" {
			t.Errorf("heard %q and %q", b.heard(), root.heard())
		}
		if got := ask(nil, 0, host, root.port, "tcp"); got != "answered" {
			t.Errorf("root to root over %s: %s", host, got)
		}
	}
}

// dial opens a connection of uid and leaves it open.
func dial(uid uint32, host string, port int) (fd int, err error) {
	addr := netip.MustParseAddr(host)
	err = sys.AsUID(uid, func() error {
		if fd, err = testSocket(addr, "tcp"); err != nil {
			return err
		}
		return unix.Connect(fd, sockaddr(addr, port))
	})
	return fd, err
}

// listener is one that is never served, so connections to it stay in its queue.
func listener(t *testing.T, uid uint32, backlog int) int {
	t.Helper()
	port := 0
	err := sys.AsUID(uid, func() error {
		fd, err := testSocket(netip.MustParseAddr("127.0.0.1"), "tcp")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, backlog)); err != nil {
			return err
		}
		port, err = portOf(fd)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestConnectionsOfOneUIDAreBounded(t *testing.T) {
	apply(t, newTable(t, hostTools), testPolicy(t, 1))
	port := listener(t, uidA, 4096)
	opened := 0
	for range 2 * maxFlows {
		fd, err := dial(uidA, "127.0.0.1", port)
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err != nil {
			if !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("beyond the bound: %v", err)
			}
			break
		}
		opened++
	}
	if opened != maxFlows {
		t.Errorf("%d connections at once, want %d", opened, maxFlows)
	}
	b := serve(t, nil, uidB, "127.0.0.1", 0, "tcp")
	if got := ask(nil, uidB, "127.0.0.1", b.port, "tcp"); got != "answered" {
		t.Errorf("B meanwhile to its own: %s", got)
	}
}

func TestNewConnectionsOfOneUIDAreBounded(t *testing.T) {
	apply(t, newTable(t, hostTools), testPolicy(t, 1))
	// A SYN to a closed port is answered by the time connect returns, unless it
	// was lost. One thread for all: to make one takes longer than the rate allows.
	lost := 0
	err := sys.AsUID(uidA, func() error {
		for n := 0; n < 20*burstFlows && lost == 0; n++ {
			fd, err := socket(netip.MustParseAddr("127.0.0.1"), false)
			if err != nil {
				return err
			}
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 1})
			code, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if errors.Is(err, unix.EINPROGRESS) && code == 0 {
				lost++
			}
			_ = unix.Close(fd)
		}
		return nil
	})
	if err != nil || lost == 0 {
		t.Errorf("%d connections at once without a bound: %v", 20*burstFlows, err)
	}
	b := serve(t, nil, uidB, "127.0.0.1", 0, "tcp")
	if got := ask(nil, uidB, "127.0.0.1", b.port, "tcp"); got != "answered" {
		t.Errorf("B meanwhile to its own: %s", got)
	}
}

// Refused SYNs wait in the listener's queue until it is told. A chat must not be
// able to keep another's queue full.
func TestRefusalsDoNotBlockTheListener(t *testing.T) {
	apply(t, newTable(t, hostTools), testPolicy(t, 1))
	b := serve(t, nil, uidB, "127.0.0.1", 0, "tcp")
	for range 400 {
		fd, err := dial(uidA, "127.0.0.1", b.port)
		_ = unix.Close(fd)
		if err == nil {
			t.Fatal("A reached B")
		}
	}
	waitFor(t, func() bool { return ask(nil, uidB, "127.0.0.1", b.port, "tcp") == "answered" })
	// Without the reset to the listener they would wait for more than a minute.
	waitFor(t, func() bool { return run(t, "ss -Htn state syn-recv") == "" })
}

// TestKnockingIsStopped: a chat that keeps connecting to others' listeners gets no new loopback
// connection for a while, not even to its own; other users are not affected.
func TestKnockingIsStopped(t *testing.T) {
	apply(t, newTable(t, hostTools), testPolicy(t, 1))
	a, b := serve(t, nil, uidA, "127.0.0.1", 0, "tcp"), serve(t, nil, uidB, "127.0.0.1", 0, "tcp")
	waitFor(t, func() bool {
		for range 2 * burstRefusals {
			fd, _ := dial(uidA, "127.0.0.1", b.port)
			_ = unix.Close(fd)
		}
		return ask(nil, uidA, "127.0.0.1", a.port, "tcp") == "refused"
	})
	waitFor(t, func() bool { return ask(nil, uidB, "127.0.0.1", b.port, "tcp") == "answered" })
	waitFor(t, func() bool { return ask(nil, uidA, "127.0.0.1", a.port, "tcp") == "answered" })
}

// Both ends open at once towards each other: there is no listener whose answer
// could be checked, only two SYNs.
func TestSimultaneousOpenIsRefused(t *testing.T) {
	apply(t, newTable(t, hostTools), testPolicy(t, 1))
	bound := func(uid uint32, from, to int) error {
		return sys.AsUID(uid, func() error {
			fd, err := testSocket(netip.MustParseAddr("127.0.0.1"), "tcp")
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: from}); err != nil {
				return err
			}
			return unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: to})
		})
	}
	for range 50 {
		done := make(chan error, 1)
		go func() { done <- bound(uidB, 40002, 40001) }()
		errA, errB := bound(uidA, 40001, 40002), <-done
		if errA == nil || errB == nil {
			t.Fatalf("connected: %v, %v", errA, errB)
		}
	}
}
