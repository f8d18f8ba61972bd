package roottest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
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

// TestWallCommand: on a host where chatd never ran, after chatd wall a uid of the range reaches no
// server, is refused immediately, and other users are not affected.
func TestWallCommand(t *testing.T) {
	newPeer(t)
	must.Do(t, flushWalls())
	t.Cleanup(func() { must.Do(t, flushWalls()) })
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

// walled looks for what each of the flushes takes away.
func walled(t *testing.T) bool {
	t.Helper()
	for _, look := range []struct {
		argv []string
		want string
	}{
		{[]string{"iptables", "-S", "OUTPUT"}, "-j CHATD"}, {[]string{"ip6tables", "-S", "OUTPUT"}, "-j CHATD"},
		{[]string{"iptables", "-S", "CHATD"}, "-A CHATD"},
	} {
		out, err := exec.Command(look.argv[0], look.argv[1:]...).CombinedOutput()
		if err != nil && look.argv[0] != "iptables" {
			t.Fatalf("%v: %v: %s", look.argv, err, out)
		}
		if !strings.Contains(string(out), look.want) {
			return false
		}
	}
	return true
}

// TestNothingBeginsAfterAFlush: while flushed rules are not restored, no session and no run begins.
// They are restored immediately, even if the next reconcile is an hour away. The test delays the repair.
func TestNothingBeginsAfterAFlush(t *testing.T) {
	opt := options(t)
	opt.Every = time.Hour
	dir := filepath.Dir(opt.State)
	barrier := filepath.Join(dir, "barrier")
	must.Do(t, os.MkdirAll(dir+"/bin", 0o755))
	for _, name := range []string{"iptables-restore", "ip6tables-restore"} {
		real := must.Get(exec.LookPath(name))(t)
		held := fmt.Sprintf("#!/bin/sh\nwhile [ -e %s ]; do sleep 0.05; done\nexec %s \"$@\"\n", barrier, real)
		must.Do(t, os.WriteFile(filepath.Join(dir, "bin", name), []byte(held), 0o755))
	}
	t.Setenv("PATH", dir+"/bin:"+os.Getenv("PATH"))
	m := open(t, opt)
	a, b := create(t, m, "flush a", "default"), asleep(t, m, "flush b")
	ctx := operator(t.Context())
	for _, flush := range [][]string{
		{"iptables", "-F"}, {"ip6tables", "-F"}, {"iptables", "-F", "CHATD"}, {"nft", "flush", "ruleset"},
		{"iptables", "-I", "OUTPUT", "1", "-j", "ACCEPT"},
	} {
		must.Do(t, os.WriteFile(barrier, nil, 0o600))
		must.Run(t, exec.Command(flush[0], flush[1:]...))
		var run error
		until(t, fmt.Sprintf("%v is noticed", flush), func() bool { // the kernel tells immediately, but chatd may wait for a CPU
			_, run = m.Run(ctx, a.ID, chat.RunSpec{Command: "true"})
			return run != nil
		})
		_, wake := m.Wake(ctx, b.ID)
		must.Do(t, os.Remove(barrier))
		for what, err := range map[string]error{"wake": wake, "run": run} {
			expect.Says(t, err, chat.ErrBusy, "somebody changed the packet rules", "%s after %v", what, flush)
		}
		until(t, fmt.Sprintf("%v is mended", flush), func() bool { return walled(t) && first(t) })
		until(t, "a run begins again", func() bool { _, err := m.Run(ctx, a.ID, chat.RunSpec{Command: "true"}); return err == nil })
	}
}

// first reports that chatd's jump is the first rule of OUTPUT.
func first(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("iptables", "-S", "OUTPUT", "1").CombinedOutput()
	return err == nil && strings.Contains(string(out), "-j CHATD")
}

// legacyTables makes iptables the older one, which takes a lock, in this test's namespaces alone,
// and returns that lock, of its own.
func legacyTables(t *testing.T) *os.File {
	t.Helper()
	needsNamespaces(t, "the host's rules are of its own iptables")
	const dir, lock = "/etc/alternatives", "/run/xtables.lock"
	names := []string{"iptables", "ip6tables", "iptables-restore", "ip6tables-restore"}
	for _, name := range names {
		link := filepath.Join(dir, name)
		was, err := os.Readlink(link)
		family, rest, _ := strings.Cut(name, "-")
		legacy := "/usr/sbin/" + family + "-legacy"
		if rest != "" {
			legacy += "-" + rest
		}
		if err != nil || !exists(legacy)() {
			missing(t, legacy+" as an alternative")
		}
		relink := func(to string) { must.Do(t, errors.Join(os.Remove(link), os.Symlink(to, link))) }
		relink(legacy)
		t.Cleanup(func() { relink(was) })
	}
	t.Cleanup(func() {
		for _, tool := range []string{"iptables-legacy", "ip6tables-legacy"} {
			out, err := exec.Command("sh", "-c", tool+" -F && "+tool+" -X").CombinedOutput()
			expect.True(t, err == nil, "%v: %s", err, out)
		}
	})
	own := must.Get(os.Create(filepath.Join(t.TempDir(), "lock")))(t)
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDONLY, 0o600) // as iptables does
	must.Do(t, errors.Join(err, f.Close()))
	must.Do(t, unix.Mount(own.Name(), lock, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must.Do(t, errors.Join(unix.Unmount(lock, unix.MNT_DETACH), own.Close())) })
	return own
}

// TestHeldXtablesLock: another program holds the lock of the older iptables. A chat's whole life
// needs no packet rule and does not notice; doctor says why it cannot look; a start waits for the
// lock, and fails as busy when it does not come. All goes on when it is free.
func TestHeldXtablesLock(t *testing.T) {
	lock := legacyTables(t)
	hold := func(how int) { must.Do(t, syscall.Flock(int(lock.Fd()), how)) }
	opt := options(t)
	first := must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	c := create(t, first, "held", "default")
	hold(syscall.LOCK_EX)
	must.Get(first.Sleep(ctx, c.ID))(t)
	must.Get(first.Wake(ctx, c.ID))(t)
	prints(t, first, c.ID, "echo on", "on\n")
	must.Do(t, first.Reap(ctx, create(t, first, "more", "default").ID))
	host := must.Get(first.Host(ctx))(t)
	for _, l := range host.Layers {
		if l.Name == chat.LayerEgress && !strings.Contains(l.Probe, "xtables lock") {
			t.Errorf("doctor of the wall: %+v", l)
		}
	}
	must.Do(t, first.Close())
	early, err := openManager(t.Context(), opt)
	expect.Says(t, err, chat.ErrBusy, "xtables lock", "a start")
	if err == nil {
		must.Do(t, early.Close())
	}
	time.AfterFunc(2*time.Second, func() { hold(syscall.LOCK_UN) })
	m := open(t, opt)
	if got, err := m.Get(ctx, c.ID); err != nil || !got.Awake {
		t.Errorf("the chat awake: %+v, %v", got, err)
	}
	whole(t, opt, create(t, m, "after", "default"))
	host, err = m.Host(ctx)
	expect.True(t, err == nil && len(host.Missing) == 0, "doctor: missing %v, %v", host.Missing, err)
}
