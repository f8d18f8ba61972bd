package netpolicy

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func raise(t testing.TB, table *Table) {
	t.Helper()
	must.Do(t, table.Raise(t.Context()))
}

// listing is everything of the wall but the counters.
func listing(t testing.TB, set tools) string {
	return run(t, set.iptables+" -S; "+set.ip6tables+" -S")
}

// Where nothing stands, Raise writes what Apply without policies writes.
func TestRaiseIsTheClosedWall(t *testing.T) {
	eachBackend(t, func(t *testing.T, set tools) {
		table := newTable(t, set)
		apply(t, table, nil)
		want := listing(t, set)
		must.Do(t, table.Remove(t.Context()))
		for range 2 { // once, and again
			raise(t, table)
			got := listing(t, set)
			expect.True(t, got == want, "Raise wrote\n%s\nwant\n%s", got, want)
		}
	})
}

// Beside a daemon Raise changes nothing that the daemon would notice.
func TestRaiseKeepsPolicies(t *testing.T) {
	eachBackend(t, func(t *testing.T, set tools) {
		table, beside := newTable(t, set), newTable(t, set)
		apply(t, table, manyPolicies(t, 40))
		want := listing(t, set)
		raise(t, beside)
		got := listing(t, set)
		expect.True(t, got == want, "Raise made\n%s\nof\n%s", got, want)
		found := drift(t, table)
		expect.True(t, len(found) == 0, "the daemon finds %q", found)
	})
}

// Raise mends what others broke and keeps the allows that are left.
func TestRaiseMends(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	for _, c := range []struct {
		name, line string
		left       string // of the drift, what only the daemon can mend
	}{
		{"flush", "iptables -F; ip6tables -F", "CHATD-P0 was flushed|CHATD-WHO was flushed"},
		{"flush and delete", "iptables -F; iptables -X", "CHATD-P0 is gone|CHATD-WHO was flushed"},
		{"jumps gone", "iptables -D OUTPUT 1; ip6tables -D OUTPUT 1", ""},
		{"jump behind an accept", "iptables -I OUTPUT -j ACCEPT", ""},
		{"base flushed", "iptables -F CHATD; ip6tables -F CHATD-NO; iptables -F CHATD-DENY", ""},
		{"accept in CHATD", "iptables -I CHATD -j ACCEPT; ip6tables -I CHATD-NO -j ACCEPT", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, beside := newTable(t, hostTools), newTable(t, hostTools)
			apply(t, table, testPolicy(t, 9999))
			run(t, c.line)
			t.Cleanup(func() { run(t, "iptables -D OUTPUT -j ACCEPT 2>/dev/null || true") })
			raise(t, beside)
			for _, sentence := range drift(t, table) {
				known := func(s string) bool { return s != "" && strings.Contains(sentence, s) }
				expect.True(t, slices.ContainsFunc(strings.Split(c.left, "|"), known),
					"after Raise: %s", sentence)
			}
		})
	}
}

// A jump for other uids stays: it is the only wall of chats of that range.
func TestRaiseKeepsAnotherRange(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	table := newTable(t, hostTools)
	run(t, "iptables -N CHATD; iptables -I OUTPUT -m owner --uid-owner 70000-80000 -j CHATD")
	for range 2 {
		raise(t, table)
	}
	output := run(t, "iptables -S OUTPUT 2>/dev/null")
	want := "-P OUTPUT ACCEPT\n-A OUTPUT -m owner --uid-owner 1879048192-1895825407 -j CHATD\n-A OUTPUT -m owner --uid-owner 70000-80000 -j CHATD"
	expect.True(t, output == want, "OUTPUT is\n%s\nwant\n%s", output, want)
}

// The lock is waited for as long as the options say.
func TestRaiseWaitsForTheLock(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	o := testOptions
	for wait, want := range map[time.Duration]string{0: "-w 10 ", time.Minute: "-w 60 "} {
		o.LockWait = wait
		table := must.Get(open(o, hostTools))(t)
		for i := range table.sides {
			table.sides[i].restore = "/bin/false"
		}
		err := table.Raise(t.Context())
		expect.True(t, err != nil && strings.Count(err.Error(), want) == 4, "waiting %s: %v", wait, err)
		expect.NoError(t, table.Remove(t.Context()))
	}
}

// A family that cannot be raised is an error that names it; the other stands.
func TestRaiseWithoutAFamily(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	table := newTable(t, hostTools)
	whole := table.sides[1]
	t.Cleanup(func() { table.sides[1] = whole })
	table.sides[1].restore = "/bin/false"
	err := table.Raise(t.Context())
	expect.True(t, err != nil && strings.Contains(err.Error(), "cannot write the IPv6 chains"),
		"Raise without ip6tables-restore: %v", err)
	output := run(t, "iptables -S OUTPUT 2>/dev/null")
	expect.True(t, strings.Contains(output, "-j CHATD"), "IPv4 has no wall: %s", output)
}

// TestRaiseRefuses: a closed wall refuses immediately, and other users are not affected.
func TestRaiseRefuses(t *testing.T) {
	out := outside(t)
	raise(t, newTable(t, hostTools))
	for _, host := range []string{"203.0.113.5", "2001:db8:1::5"} {
		for _, proto := range []string{"tcp", "udp", "mptcp"} {
			s := serve(t, out, 0, host, 0, proto)
			closed(t, host, s.port, proto)
		}
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		closed(t, host, serve(t, nil, 0, host, 0, "tcp").port, "tcp")
		closed(t, host, serve(t, nil, 0, host, 0, "udp").port, "udp")
		expect.Equal(t, ask(nil, uidA, host, serve(t, nil, uidA, host, 0, "tcp").port, "tcp"), "refused",
			"a uid's own server on %s", host)
	}
}

func closed(t *testing.T, host string, port int, proto string) {
	t.Helper()
	if got := ask(nil, uidA, host, port, proto); got != "refused" { // at once, or it were silent
		t.Errorf("%s to %s: %s", proto, host, got)
	}
	expect.Equal(t, ask(nil, uidHost, host, port, proto), "answered",
		"control: another user by %s to %s", proto, host)
}

// TestClaim: of one network namespace one process has the rules, until it ends; another is told
// its pid. A flush of all rules takes nothing away.
func TestClaim(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	expect.NoError(t, sys.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		first, err := Claim()
		if err != nil {
			return err
		}
		if err := execute(t.Context(), "", "nft", "flush", "ruleset"); err != nil {
			return err
		}
		second, err := Claim()
		if !errors.Is(err, chat.ErrBusy) ||
			!strings.Contains(err.Error(), fmt.Sprintf("process %d has", os.Getpid())) {
			return fmt.Errorf("the second: %v, %w", second, err)
		}
		if err := first.Close(); err != nil {
			return err
		}
		third, err := Claim()
		if err != nil {
			return fmt.Errorf("after the first: %w", err)
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		other, err := Claim()
		if err != nil {
			return fmt.Errorf("in another namespace: %w", err)
		}
		return errors.Join(third.Close(), other.Close())
	}))
}
