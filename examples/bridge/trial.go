//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

// trial lets chat A try things, and keeps what came of them.
type trial struct {
	ctx    context.Context
	daemon *client.Client
	host   *host
	chats  []chat.Chat
	a, b   chat.Chat // the two of them
	rows   []row
}

type row struct {
	tried, came, layer string
	held               bool
}

// attempt is a shell command that chat A runs. It is held when the output has
// want and not never.
type attempt struct {
	tried       string
	command     string
	want, never string
	layer       chat.LayerName
}

// dial prints what a TCP connection from bash comes to.
func dial(host string, port int) string {
	return fmt.Sprintf("timeout 5 bash -c 'exec 3<>/dev/tcp/%s/%d && cat <&3' 2>&1", host, port)
}

func (t *trial) attempts() []attempt {
	b := t.b
	return []attempt{
		{"list B's home", "ls " + b.Home + " 2>&1", "No such file", "", chat.LayerView},
		{"read what B put into /tmp", "cat /tmp/secret 2>&1", "No such file", "secret\n", chat.LayerTmp},
		{"list B's processes (one is perl)", "echo $(ps -e -o comm=)", "tmux", "perl", chat.LayerProc},
		{"signal a process of B", "kill -0 " + pidsOf(b.UID)[0] + " 2>&1", "No such process", "", chat.LayerProc},
		{"B's server on 127.0.0.1", dial("127.0.0.1", 7777), "refused", "hello", chat.LayerNetwork},
		{"B's server on the host's own address", dial(ownAddress, 7777), "reset", "hello", chat.LayerNetwork},
		{"an address that is listed", dial(peerAddress, 8000), "hello", "", ""},
		{"a port that is not", dial(peerAddress, 8001), "reset", "hello", chat.LayerEgress},
		{"the metadata address", dial("169.254.169.254", 80), "reset", "hello", chat.LayerEgress},
		{"400 processes", "for i in $(seq 400); do sleep 9 & done 2>&1; echo $(ps -e | wc -l)", "fork", "", chat.LayerPids},
		{"a new user namespace", "unshare -Ur true 2>&1", "refused", "", chat.LayerPath},
		{"the same by its full name", "/usr/bin/unshare -Ur true 2>&1", "not permitted", "", chat.LayerSeccomp},
		{"write to /etc and /usr", "touch /etc/x /usr/x 2>&1", "Read-only", "", chat.LayerView},
		{"become root with su", "/usr/bin/su -c id 2>&1 </dev/null; grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1", "uid=0", chat.LayerPrivileges},
		{"list what only the host has", "ls /etc/shadow /root /var/lib /sys 2>&1", "No such file", "", chat.LayerView},
	}
}

// all runs the attempts, prints the table, and fails unless every one held.
func (t *trial) all() error {
	if slices.Contains(os.Args[1:], "--break") {
		t.host.breakWalls(t.chats)
	}
	if err := t.prepareB(); err != nil {
		return err
	}
	say("chat A tries")
	for _, a := range t.attempts() {
		if err := t.try(a); err != nil {
			return err
		}
	}
	if err := errors.Join(t.tryMemory(), t.tryHomeByUID(), t.tryWorld()); err != nil {
		return err
	}
	return t.print()
}

// prepareB gives B a secret and a server, typed into its terminal, and makes
// sure that both are there for those who may have them.
func (t *trial) prepareB() error {
	for _, line := range []string{"echo secret > ~/secret; echo secret > /tmp/secret", "perl -e '" + server + "' 0.0.0.0 7777 &"} {
		if err := t.daemon.Input(t.ctx, t.b.ID, chat.Input{Text: line, Enter: true}); err != nil {
			return err
		}
	}
	if err := t.waitScreen(t.b.ID, "up!"); err != nil {
		return err
	}
	for command, want := range map[string]string{"cat ~/secret /tmp/secret": "secret\nsecret\n", dial("127.0.0.1", 7777): "hello\n"} {
		r, err := t.daemon.Run(t.ctx, t.b.ID, chat.RunSpec{Command: command})
		if err != nil || r.Stdout != want {
			return fmt.Errorf("cannot show anything: B itself should have what A must not, but %s gave %q %q: %w", command, r.Stdout, r.Stderr, err)
		}
	}
	if err := errors.Join(reachable("8000"), reachable("8001")); err != nil {
		return fmt.Errorf("the peer does not answer root: %w", err)
	}
	return nil
}

func (t *trial) try(a attempt) error {
	r, err := t.daemon.Run(t.ctx, t.a.ID, chat.RunSpec{Command: a.command, Timeout: chat.Duration(30 * time.Second)})
	if err != nil {
		return fmt.Errorf("%s: %w", a.tried, err)
	}
	out := r.Stdout + r.Stderr
	held := strings.Contains(out, a.want) && (a.never == "" || !strings.Contains(out, a.never))
	by := "layer " + string(a.layer)
	if a.layer == "" {
		by = "allowed by the profile"
	}
	t.rows = append(t.rows, row{a.tried, lastLine(out), by, held})
	return nil
}

// lastLine is the line that says most, made safe for a terminal.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	line := lines[len(lines)-1]
	if i := strings.LastIndex(line, ": "); i >= 0 && len(line) > 48 {
		line = line[i+2:]
	}
	return strings.Trim(chat.Quote(line), `"`)
}

func (t *trial) tryMemory() error {
	r, err := t.daemon.Run(t.ctx, t.a.ID, chat.RunSpec{Command: `perl -e '$x = "a" x 600_000_000; print "got it"'`})
	t.rows = append(t.rows, row{"600 MB of memory", "killed by the kernel", "layer memory", err == nil && r.OOMKilled && r.Stdout == ""})
	return err
}

// tryHomeByUID acts as A's uid outside every inner wall: what is left is the
// file mode.
func (t *trial) tryHomeByUID() error {
	uid := fmt.Sprint(t.a.UID)
	out, err := exec.Command("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "cat", t.b.Home+"/secret").CombinedOutput()
	t.rows = append(t.rows, row{"B's home, as A's uid outside the session", lastLine(string(out)), "layer home",
		err != nil && strings.Contains(string(out), "Permission denied")})
	_, err = os.ReadFile(t.b.Home + "/secret")
	return err
}

// tryWorld connects from the peer to B's listener on all addresses.
func (t *trial) tryWorld() error {
	out, _ := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", t.host.peer.Process.Pid),
		"timeout", "3", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/7777; cat <&3", ownAddress)).CombinedOutput()
	t.rows = append(t.rows, row{"the world connects to B's 0.0.0.0 server", "no answer", "layer network", !strings.Contains(string(out), "hello")})
	return nil
}

func (t *trial) print() error {
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tTRIED\tCAME OF IT\tBY")
	failed := 0
	for _, r := range t.rows {
		mark := "ok"
		if !r.held {
			mark = "BROKEN"
			failed++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, r.tried, r.came, r.layer)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d walls did not hold", failed, len(t.rows))
	}
	return nil
}
