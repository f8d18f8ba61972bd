package roottest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// silentNameService lets nss-systemd(8) ask a service that takes each question and answers none,
// as one whose directory is on a host that is down. It returns what ends it.
func silentNameService(t *testing.T) (end func()) {
	t.Helper()
	if onHost() {
		t.Skip("the host's own name services answer")
	}
	const dir = "/run/systemd"
	must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	must.Do(t, os.Mkdir(filepath.Join(dir, "userdb"), 0o755))
	l := must.Get(net.Listen("unix", filepath.Join(dir, "userdb", "io.systemd.Silent")))(t)
	must.Do(t, os.Chmod(l.Addr().String(), 0o666))
	ended := false
	end = func() {
		if !ended {
			ended = true
			must.Do(t, errors.Join(l.Close(), unix.Unmount(dir, unix.MNT_DETACH)))
		}
	}
	t.Cleanup(end)
	return end
}

// TestSilentNameService: while a name service takes questions and does not answer, a create fails
// within a bound, says so and leaves nothing half done. All other verbs go on meanwhile: they ask
// no name service. When it answers again, the create is done.
func TestSilentNameService(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	awake, asleep := create(t, m, "awake", "default"), asleep(t, m, "asleep")
	answers := silentNameService(t)
	failed := make(chan error, 1)
	go func() { failed <- second2(m.Create(ctx, chat.Spec{ExternalID: "silent"})) }()
	if page, err := m.List(ctx, chat.Filter{Limit: 10}); err != nil || len(page.Chats) < 2 {
		t.Errorf("ls: %d chats, %v", len(page.Chats), err)
	}
	if r := run(t, m, awake.ID, "echo on; id -un"); !strings.HasPrefix(r.Stdout, "on\n") {
		t.Errorf("a run: %+v", r)
	}
	must.Get(m.Sleep(ctx, awake.ID))(t)
	must.Get(m.Wake(ctx, awake.ID))(t)
	must.Get(m.Wake(ctx, asleep.ID))(t)
	must.Do(t, m.Reap(ctx, asleep.ID))
	select {
	case err := <-failed:
		t.Errorf("the create did not wait for the others: %v", err)
	default:
	}
	err := <-failed
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "name service"),
		"the create: %v, want %v", err, chat.ErrBusy)
	if again, err := m.Get(ctx, awake.ID); err != nil || !again.Awake {
		t.Errorf("the chat awake: %+v, %v", again, err)
	}
	answers()
	whole(t, opt, create(t, m, "silent", "default"))
	whole(t, opt, awake)
}

// TestStartWithoutNameService: chatd starts while a name service does not answer, walls and all,
// and shows and reaps what there is. Of what it cannot try it says so, and does not take to
// useradd(8) instead. Nothing new begins until it can.
func TestStartWithoutNameService(t *testing.T) {
	opt := options(t)
	before, err := openManager(t.Context(), opt)
	must.Do(t, err)
	was := create(t, before, "before", "default")
	must.Do(t, before.Close())
	answers := silentNameService(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	if got, err := m.Get(ctx, was.ID); err != nil || !got.Awake {
		t.Errorf("the chat awake: %+v, %v", got, err)
	}
	_, err = m.Run(ctx, was.ID, chat.RunSpec{Command: "true"})
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "name service"),
		"a run: %v, want %v", err, chat.ErrBusy)
	must.Do(t, m.Reap(ctx, was.ID))
	answers()
	host, err := m.Host(ctx) // tries the walls again
	must.Do(t, err)
	for _, l := range host.Layers {
		if l.Name == chat.LayerAccount && (l.State != chat.LayerOn || l.By != "userdb") {
			t.Errorf("the layer account is %+v", l)
		}
	}
	again := create(t, m, "before", "default")
	whole(t, opt, again)
	expect.True(t, again.UID != was.UID, "uid %d is given twice", was.UID)
}
