//go:build e2e

package vagrant

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostEgress: a chat with a network of its own reaches what its profile lists and nothing else,
// by a process of a user of its own in a unit of its own, which systemd starts again; chatd's
// restart ends no connection.
func TestHostEgress(t *testing.T) {
	useProfiles(t)
	useOutside(t)
	a := create(t, "own")
	wantSaid(t, a.ID, say(outsideV4, 8000), "outside")
	wantSaid(t, a.ID, say(outsideV6, 8000), "outside")
	wantSaid(t, a.ID, say(outsideV4, 8001), "")
	wantSaid(t, a.ID, say("10.213.0.1", 22), "")
	wantSaid(t, a.ID, "sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo")
	expect.True(t, dial(a.UID, "tcp", outsideV4+":8000") != nil,
		"a process of the chat's uid outside its session reaches what the profile lists")

	const unit = "chatd-egress.service"
	pid := property(t, unit, "MainPID")
	if user := output(t, "ps", "-o", "user=", "-p", pid); user != "chatd-egress" &&
		user != "chatd-e+" {
		t.Errorf("it runs as %s", user)
	}
	noPrivilege(t, pid)
	if devices := output(t, "nsenter", "-t", pid, "-n", "ip", "-o", "link"); strings.Count(devices, "\n") > 0 || !strings.Contains(devices, "lo:") {
		t.Errorf("its network has %s", devices)
	}

	output(t, "systemctl", "kill", "-s", "KILL", unit)
	wantSaid(t, a.ID, say(outsideV4, 8000), "outside")
	open := fmt.Sprintf(`exec 3<>/dev/tcp/%s/8002; touch ~/connected; cat <&3 >~/heard`, outsideV4)
	must.Get(asker.StartRun(bounded(timeout), a.ID, chat.RunSpec{Argv: []string{"bash", "-c", open},
		Timeout: chat.Duration(time.Hour)}))(t)
	eventually(t, timeout, "the connection stands", func() bool {
		return strings.Contains(run(t,
			a.ID, "ls").Stdout, "connected")
	})
	restart(t)
	late <- "after the restart\n"
	eventually(t, timeout, "what came after a restart of chatd", func() bool {
		return strings.Contains(run(t, a.ID, "cat heard").Stdout, "after the restart")
	})
	wantSaid(t, a.ID, say(outsideV4, 8000), "outside")
}

// say is a command that prints what a server says first; nothing if it is not reached.
func say(host string, port int) string {
	return fmt.Sprintf(`timeout 20 bash -c 'exec 3<>/dev/tcp/%s/%d && cat <&3' 2>/dev/null || true`, host, port)
}

func wantSaid(t *testing.T, id chat.ID, command, want string) {
	t.Helper()
	expect.Equal(t, strings.TrimSpace(run(t, id, command).Stdout), want, "%s", command)
}
