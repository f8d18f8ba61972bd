package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		tried(&l, to+" by TCP", t.send("tcp", net.JoinHostPort(to, "443")))
		tried(&l, to+" by UDP", t.send("udp", net.JoinHostPort(to, "53")))
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
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	defer l.Close()
	return t.send("tcp", l.Addr().String())
}

// send connects as ProbeUID, or sends one empty datagram. nil is an answer, or with UDP that the
// datagram left.
func (t *Table) send(network, address string) error {
	return sys.AsUID(t.opts.ProbeUID, func() error {
		c, err := net.DialTimeout(network, address, probeTimeout)
		if err != nil {
			return err
		}
		if network == "udp" {
			_, err = c.Write(nil)
		}
		return errors.Join(err, c.Close())
	})
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
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return "got no answer"
	}
	return err.Error()
}
