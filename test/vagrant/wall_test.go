//go:build e2e

package vagrant

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// nobody is the uid of controls that need no account.
const nobody = 65534

// TestHostWall tries the packet walls from the host's own network, with the uid of a chat: what the
// profile names answers a socket as chatd-root makes it for chatd-egress, everything else is refused
// immediately, and nobody, the control, reaches all of it.
func TestHostWall(t *testing.T) {
	useProfiles(t)
	useOutside(t)
	web, closed := create(t, "web"), create(t, "")
	server := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer server.Close()
	go answer(server)
	for _, at := range []struct {
		network, address string
		web              bool
	}{
		{"tcp", net.JoinHostPort(outsideV4, "8000"), true},
		{"tcp", net.JoinHostPort(outsideV6, "8000"), true},
		{"tcp", net.JoinHostPort(outsideV4, "8001"), false},
		{"tcp", net.JoinHostPort(outsideV6, "8001"), false},
		{"udp", net.JoinHostPort(outsideV4, "8000"), false},
		{"udp", net.JoinHostPort(outsideV6, "8000"), false},
		{"tcp", server.Addr().String(), false},
		{"tcp", "10.213.0.1:22", false},
	} {
		name := at.network + "_" + at.address
		expect.Is(t, dial(nobody, at.network, at.address), nil, "%s: the control failed", name)
		wantCarried(t, name+" of the profile web", web.UID, at.network, at.address, at.web)
		wantDial(t, name+" of a process of its uid", web.UID, at.network, at.address, false)
		wantCarried(t, name+" carried for a closed profile", closed.UID, at.network, at.address, false)
		wantDial(t, name+" of a closed profile", closed.UID, at.network, at.address, false)
		wantDial(t, name+" of a uid that no chat has", uidHigh-7, at.network, at.address, false)
	}
}

func wantDial(t *testing.T, what string, uid uint32, network, address string, want bool) {
	t.Helper()
	wantOutcome(t, what, dial(uid, network, address), want)
}

// wantCarried is wantDial by a socket as chatd-root makes it for chatd-egress.
func wantCarried(t *testing.T, what string, uid uint32, network, address string, want bool) {
	t.Helper()
	wantOutcome(t, what, dialOf(uid, carrierGID(t), network, address), want)
}

func wantOutcome(t *testing.T, what string, err error, want bool) {
	t.Helper()
	switch {
	case want && err != nil:
		t.Errorf("%s: %v, want an answer", what, err)
	case !want && err == nil:
		t.Errorf("%s: it was let through", what)
	case !want && !refused(err): // a timeout is no refusal
		t.Errorf("%s: %v, want a refusal at once", what, err)
	}
}

// TestHostWallInside: the same from inside the sessions, by the chat's own shell.
func TestHostWallInside(t *testing.T) {
	useProfiles(t)
	useOutside(t)
	c := create(t, "web")
	const ask = `python3 -c 'import socket,sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).recv(9))' %s %s`
	got := said(t, c.ID, fmt.Sprintf(ask, outsideV4, "8000"))
	expect.True(t, strings.Contains(got, "outside"), "what the profile allows: %q", got)
	r := run(t, c.ID, fmt.Sprintf(ask, outsideV4, "8001"))
	expect.True(t, r.Exit != 0 && strings.Contains(r.Stderr, "Connection reset"), "what it does not allow: %+v", r)
}

// TestHostWallUnit: the wall stands without chatd too, and chatd wall does not
// loosen nor drop what a running chatd raised.
func TestHostWallUnit(t *testing.T) {
	useProfiles(t)
	useOutside(t)
	c := create(t, "web")
	allowed, denied := net.JoinHostPort(outsideV4, "8000"), net.JoinHostPort(outsideV4, "8001")
	check := func(when string) {
		wantCarried(t, when+": allowed", c.UID, "tcp", allowed, true)
		wantCarried(t, when+": denied", c.UID, "tcp", denied, false)
		wantDial(t, when+": of its uid alone", c.UID, "tcp", allowed, false)
	}
	check("at first")
	output(t, program, "wall")
	check("after chatd wall")
	output(t, "systemctl", "stop", service)
	t.Cleanup(func() { output(t, "systemctl", "start", service) })
	check("without chatd")
	output(t, "systemctl", "restart", "chatd-wall.service")
	expect.Equal(t, property(t, "chatd-wall.service", "ActiveState"), "active", "chatd-wall.service")
	wantDial(t, "after the wall unit: denied", c.UID, "tcp", denied, false)
}
