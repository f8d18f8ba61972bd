package netpolicy

import (
	"context"
	"errors"
	"net"
	"os"
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

// ownMounts mounts dir over a directory for this process alone. It is called once for each.
func ownMounts(t *testing.T, over string) {
	t.Helper()
	needsRoot(t)
	for _, act := range []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", over, "tmpfs", 0, "mode=755") },
	} {
		must.Do(t, act())
	}
	t.Cleanup(func() { expect.NoError(t, unix.Unmount(over, unix.MNT_DETACH)) })
}

// TestSilentNameService: the wall is raised, mended and removed while a name service takes
// questions and answers none: the owner match asks it for each uid.
func TestSilentNameService(t *testing.T) {
	ownMounts(t, "/run/systemd")
	dir := "/run/systemd/userdb"
	must.Do(t, os.Mkdir(dir, 0o755))
	l := must.Get(net.Listen("unix", filepath.Join(dir, "io.systemd.Silent")))(t)
	defer l.Close()
	for name, set := range backends() {
		table := newTable(t, set)
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second) // one lookup takes longer
		err := table.Apply(ctx, nil)
		if err == nil {
			run(t, set.iptables+" -F OUTPUT")
			_, err = table.Mend(ctx)
		}
		if err = errors.Join(err, table.Remove(ctx), ctx.Err()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		stop()
	}
}

// TestHeldLock: while another program holds the xtables lock, a call fails as busy, says why and
// changes nothing; when it is free again, the same call is done.
func TestHeldLock(t *testing.T) {
	needsRoot(t)
	set, ok := backends()["legacy"]
	if !ok {
		t.Skip("no iptables-legacy, or it is the host's own")
	}
	opt := testOptions
	opt.LockWait = time.Second
	table := must.Get(open(opt, set))(t)
	ownMounts(t, "/run") // the lock is one for all namespaces of the network
	lock := must.Get(os.Create("/run/xtables.lock"))(t)
	defer lock.Close()
	must.Do(t, table.Apply(t.Context(), nil))
	rules := func() string { return run(t, set.iptables+"-save | grep -v ^#") }
	before := rules()
	policies := []Policy{{Profile: "web", Blocks: []Range{{rangeLow + 65536, rangeLow + 131071}}}}
	must.Do(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Apply", func() error { return table.Apply(t.Context(), policies) }},
		{"Mend", func() error { _, err := table.Mend(t.Context()); return err }},
		{"Remove", func() error { return table.Remove(t.Context()) }}, // after it nothing is mended
	} {
		err := c.call()
		expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "xtables lock"),
			"%s: %v, want %v", c.name, err, chat.ErrBusy)
	}
	must.Do(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN))
	expect.Equal(t, rules(), before, "before %s\nafter", before)
	expect.NoError(t, errors.Join(table.Apply(t.Context(), policies), table.Remove(t.Context())))
}
