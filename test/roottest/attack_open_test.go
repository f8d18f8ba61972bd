package roottest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestAttackHostNetwork: chat A tries what the host's network would give it, were it in that.
func TestAttackHostNetwork(t *testing.T) {
	m := open(t, attackOptions(t))
	newPeer(t)
	for name, try := range map[string]func(*testing.T, *manager) (through bool, what string){
		"all ports of the host":     takePorts,
		"see a neighbour's sockets": seeSockets,
	} {
		t.Run(name, func(t *testing.T) {
			if through, what := try(t, m); through {
				t.Error(what)
			}
		})
	}
}

// portScript binds every port that the kernel chooses from, 900 in a process,
// and then makes the file bound. It is Perl, for 30 processes of the attacker's
// size would not fit into the chat's memory.
const portScript = `use Socket; my @k;
for my $p (32768..60999) {
	if (@k && $p % 900 == 0) { fork() and sleep 1000; @k = () }
	socket(my $s, PF_INET, SOCK_STREAM, 0) or next;
	bind($s, sockaddr_in($p, INADDR_ANY));
	push @k, $s;
}
open F, ">", "$ENV{HOME}/bound"; close F; sleep 1000`

// takePorts: in the host's network a bound port is taken for all, root too.
func takePorts(t *testing.T, m *manager) (bool, string) {
	a := inmateOf(t, m, "ports", "web")
	must.Do(t, os.WriteFile(a.in("ports.pl"), []byte(portScript), 0o644))
	a.typeLine(t, "perl ~/ports.pl &")
	bound := exists(a.in("bound"))
	until(t, "the ports are bound, or the session ended", func() bool { return bound() || !awake(t, a) })
	if !awake(t, a) {
		return false, "the session was ended, for its sockets held too much"
	}
	got := asHost(t, "dial", "10.213.0.2:8000")
	return !strings.HasPrefix(got, "ok"), "root dials out: " + got
}

// seeOpens: inotify(7) tells of a file, not of a mount, and all chats have the
// same /usr.
func seeOpens(t *testing.T, m *manager) (bool, string) {
	a, b := inmateOf(t, m, "opens a", "default"), inmateOf(t, m, "opens b", "default")
	a.typeLine(t, a.program+" watch /usr/bin/uname ~/ready ~/go >~/got.new; mv ~/got.new ~/got")
	must.Do(t, awaitFile(a.in("ready")))
	b.sh(t, "uname")
	must.Do(t, os.WriteFile(a.in("go"), nil, 0o644))
	must.Do(t, awaitFile(a.in("got")))
	got, err := os.ReadFile(a.in("got"))
	return strings.HasPrefix(string(got), "ok"), fmt.Sprintf("A on B running uname: %s, %v", strings.TrimSpace(string(got)), err)
}

// seeSockets: /proc/net/unix names the sockets of everybody in one network.
func seeSockets(t *testing.T, m *manager) (bool, string) {
	a, b := inmateOf(t, m, "sockets a", "web"), inmateOf(t, m, "sockets b", "web")
	b.background(t, "ready", "serve-unix", b.in("s"), b.in("ready"))
	r := run(t, m, a.ID, "grep "+string(b.ID)+" /proc/net/unix")
	return r.Exit == 0, "A reads " + chat.Quote(r.Stdout)
}
