package roottest

import (
	"errors"
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

// legacyTables makes iptables the older one, which takes a lock, in this test's namespaces alone,
// and returns that lock, of its own.
func legacyTables(t *testing.T) *os.File {
	t.Helper()
	needsRoot(t)
	if onHost() {
		t.Skip("the host's rules are of its own iptables")
	}
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
	if r := run(t, first, c.ID, "echo on"); r.Stdout != "on\n" {
		t.Errorf("a run: %+v", r)
	}
	must.Do(t, first.Reap(ctx, create(t, first, "more", "default").ID))
	host := must.Get(first.Host(ctx))(t)
	for _, l := range host.Layers {
		if l.Name == chat.LayerEgress && !strings.Contains(l.Probe, "xtables lock") {
			t.Errorf("doctor of the wall: %+v", l)
		}
	}
	must.Do(t, first.Close())
	early, err := openManager(t.Context(), opt)
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "xtables lock"),
		"a start: %v, want %v", err, chat.ErrBusy)
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
