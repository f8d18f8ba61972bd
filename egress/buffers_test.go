package egress

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestBuffers: of a chat with many connections the first have buffers that the kernel lets grow, and
// each further one has small ones. One that ends makes room; another chat has its own.
func TestBuffers(t *testing.T) {
	w := newWorld(t)
	kept := make(chan int, 1)
	w.root.made = func(fd int) { kept <- duplicate(t, fd) }
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	var all []*net.TCPConn
	narrow := func(n *network, want bool) {
		t.Helper()
		c := w.dial(n, server)
		wantEcho(t, c, "x")
		expect.Equal(t, isNarrow(t, <-kept), want, "connection %d has small buffers", len(all)+1)
		all = append(all, c)
	}
	for i := range wideServers + 3 {
		narrow(n, i >= wideServers)
	}
	narrow(w.open(two, server.String()), false)
	for _, c := range all[:4] {
		c.Close()
		w.event(Allowed, "")
	}
	narrow(n, false) // 8 with it
	narrow(n, true)
}

func duplicate(t *testing.T, fd int) int {
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	expect.NoError(t, err)
	return d
}

// isNarrow reports whether a socket's buffers are those of one that was bounded. It closes fd.
func isNarrow(t *testing.T, fd int) bool {
	t.Helper()
	other, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	same := true
	for _, buffer := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		err1 := unix.SetsockoptInt(other, unix.SOL_SOCKET, buffer, narrowBuffer)
		want, err2 := unix.GetsockoptInt(other, unix.SOL_SOCKET, buffer)
		got, err3 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, buffer)
		err = errors.Join(err, err1, err2, err3)
		same = same && got == want
	}
	if err = errors.Join(err, unix.Close(other), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	return same
}
