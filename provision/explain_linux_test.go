package provision

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/must"
)

// TestExplainLooksAtTheHostOnce: what keeps a denial in the next session of a chat that is asleep
// is told by one look at what its profile opens of the host: a grant by a pattern lists a
// directory as often as a session that begins does.
func TestExplainLooksAtTheHostOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root, and CHATD_TEST_REQUIRE=all")
		t.Skip("SKIPPED: needs root: grants are of directories that only root may write to")
	}
	dir := must.Get(os.MkdirTemp("/srv", "chatd-test-"))(t)
	defer os.RemoveAll(dir)
	must.Do(t, errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(filepath.Join(dir, "data/secret"), 0o755)))
	m, rec := ruled(t, "access: {useDefaults: false, deny: [/data/secret]}")
	m.opt.Private, m.opt.Userdb = m.opt.State, m.opt.State // else they are everywhere
	m.mounts.views = m.newViews()
	p := m.opt.Profiles[rec.Profile]
	p.ExposePaths = []chat.Expose{{Source: filepath.Join(dir, "data"), Target: "/data", Mode: chat.ReadOnly}}
	p.AllowReadPaths = []string{"^" + dir + "/[a-z]*$"}
	m.opt.Profiles[rec.Profile] = p
	rec = m.chats.subject(rec.Record)
	looks := opensOf(t, dir)
	if _, _, err := m.mounts.next(rec); err != nil {
		t.Fatal(err)
	}
	once := looks()
	rules := must.Get(m.policy.Rules(rec.rules()))(t)
	v, err := rules.Verdict("/data/secret", filerules.Read)
	must.True(t, err == nil && v.Denied(), "the verdict is %+v, %v", v, err)
	masked, leftOut := m.mounts.closedBy(rec)
	by := rules.KeptBy(v, masked, leftOut)
	if !slices.Equal(by, []string{"chatd-enforce", "bubblewrap", "landlock"}) {
		t.Errorf("kept by %q", by)
	}
	if got := looks(); once == 0 || got != once {
		t.Errorf("the granted directory was listed %d times, want %d, and not 0", got, once)
	}
}

// opensOf returns a function that counts how often dir was opened since it was called last.
func opensOf(t *testing.T, dir string) func() int {
	t.Helper()
	fd := must.Get(unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC))(t)
	t.Cleanup(func() { unix.Close(fd) })
	// With the closes between them two opens do not become one event (inotify(7)).
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_CLOSE_NOWRITE|unix.IN_ONLYDIR); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		buf := make([]byte, 1<<16)
		for {
			size, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return n
			}
			must.Do(t, err)
			for at := 0; at < size; {
				mask, name := binary.NativeEndian.Uint32(buf[at+4:]), binary.NativeEndian.Uint32(buf[at+12:])
				if name == 0 && mask&unix.IN_OPEN != 0 { // of dir itself, not of what is in it
					n++
				}
				at += unix.SizeofInotifyEvent + int(name)
			}
		}
	}
}
