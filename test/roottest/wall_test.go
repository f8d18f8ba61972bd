package roottest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// wallCommand runs "chatd wall" for the tests' uids, with a state directory that
// is not there.
func wallCommand(t *testing.T) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "wall.yaml")
	text := fmt.Sprintf("uids: %d-%d\nstate: /nowhere/state\nrun: /nowhere/run\n", testUIDs.Low, testUIDs.High)
	must.Do(t, os.WriteFile(config, []byte(text), 0o600))
	must.Run(t, exec.Command(programs.chatd, "wall", "--config", config))
}

// dropWall takes every trace of the wall away, as on a fresh boot.
func dropWall(t *testing.T) {
	t.Helper()
	for _, line := range []string{"iptables -F", "iptables -X", "ip6tables -F", "ip6tables -X"} {
		must.Run(t, exec.Command("sh", "-c", line))
	}
}

// TestWallCommand: on a host where chatd never ran, after chatd wall a uid of the range reaches no
// server, is refused immediately, and other users are not affected.
func TestWallCommand(t *testing.T) {
	needsRoot(t)
	newPeer(t)
	dropWall(t)
	t.Cleanup(func() { dropWall(t) })
	_, tcp, err := net.SplitHostPort(hostServer(t, "tcp", "[::]:0"))
	must.Do(t, err)
	inside, outside := testUIDs.Low+7, uint32(4242)
	cases := [][2]string{
		{"dial", "10.213.0.2:8000"}, {"dial", "[fd13:213::2]:8000"}, {"dial", "203.0.113.2:80"}, {"dial", "169.254.169.254:80"},
		{"send-udp", "10.213.0.2:9000"}, {"send-udp", "[2001:db8:213::2]:9000"},
		{"dial", "127.0.0.1:" + tcp}, {"dial", "[::1]:" + tcp}, {"dial-mptcp", "10.213.0.1:" + tcp}, {"send-udp", "127.0.0.1:" + tcp},
	}
	for _, c := range cases {
		outcomes(t, "control: before the wall, "+c[0]+" "+c[1], asUser(t, inside, c[0], c[1]), "ok")
	}
	for range 2 { // once, and again
		wallCommand(t)
		for _, c := range cases {
			// Refused immediately: a connection without an answer would end with a timeout, which
			// is none of these.
			outcomes(t, c[0]+" "+c[1], asUser(t, inside, c[0], c[1]), refusals)
			outcomes(t, "control: another user, "+c[0]+" "+c[1], asUser(t, outside, c[0], c[1]), "ok")
		}
	}
}

// TestWallCommandBesideDaemon: chatd wall keeps what the daemon allows. While
// chatd is down, it closes what iptables -F opened, until chatd opens its part.
func TestWallCommandBesideDaemon(t *testing.T) {
	opt := attackOptions(t)
	newPeer(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	web, none := inmateOf(t, m, "wall web", "web"), testUIDs.High-1
	allowed, denied := "10.213.0.2:8000", "10.213.0.2:9000"
	for range 2 {
		wallCommand(t)
		outcomes(t, "an allow beside chatd wall", web.try(t, "dial", allowed), "ok")
		outcomes(t, "no allow beside chatd wall", web.try(t, "dial", denied), refusals)
	}
	must.Do(t, m.Close())
	outcomes(t, "an allow while chatd is down", asCarrier(t, opt, web.UID, "dial", allowed), "ok")
	outcomes(t, "the uid alone while chatd is down", asUser(t, web.UID, "dial", allowed), refusals)

	for _, tables := range []string{"iptables", "ip6tables"} {
		must.Run(t, exec.Command(tables, "-F"))
	}
	outcomes(t, "control: flushed", asUser(t, none, "dial", denied), "ok")
	wallCommand(t)
	outcomes(t, "after the flush and chatd wall", asUser(t, none, "dial", denied), refusals)
	outcomes(t, "a policy that was flushed", asCarrier(t, opt, web.UID, "dial", allowed), refusals)
	web.m = open(t, opt)
	outcomes(t, "what chatd put back", web.try(t, "dial", allowed), "ok")
	outcomes(t, "what it did not", web.try(t, "dial", denied), refusals)
}
