package enforce

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackFollow: where a directory is that was just made is known from its name, in the sessions
// that see what is around it and in no other, without a look into each; but where the root of a
// session's tree is is always looked for.
func TestAttackFollow(t *testing.T) {
	policy, err := rulefile.Load("rules.yaml", []byte("access: {useDefaults: false, deny: ['**/.env']}"))
	must.Do(t, err)
	rs := must.Get(policy.For(filerules.Scope{Home: "/home/a"}))(t)
	saved := must.Get(os.CreateTemp(t.TempDir(), "notes"))(t)
	defer saved.Close()
	w := newWatch(-1, -1)
	w.recheck, w.end = func(chat.ID) {}, func(_ *session, err error) { t.Error(err) }
	s := &watchedSession{session: &session{}, walls: []*pathclass.Wall{pathclass.New(rs)}, denied: map[handle]denial{}, journal: saved}
	// Nothing can be looked for here: a tree has no descriptor.
	s.trees = []watchedTree{{Base: &pathclass.Base{Tree: -1}, fsid: "12345678", fd: -1}}
	w.sessions["0123456789abcdef"] = s
	name := func(id string) handle { return handle("12345678    " + id) }
	home, inside, deeper, beside, root := name("home"), name("inside"), name("deeper"), name("beside"), name("root")
	made := func(in handle, what string, child handle, mask uint64) fanEvent {
		return fanEvent{mask: unix.FAN_CREATE | mask, dir: dirName{in, what}, child: child}
	}
	w.roots[root] = []sessionRoot{{s.trees[0], s}}
	w.owners = map[handle][]*watchedSession{home: {s}, name("host"): nil}
	s.dirs.put(home, "/home", "a")
	for _, e := range []fanEvent{
		made(home, "in", inside, unix.FAN_ONDIR), made(inside, "er", deeper, unix.FAN_ONDIR), made(deeper, ".env", name("file"), 0),
		made(name("host"), "beside", beside, unix.FAN_ONDIR), made(beside, ".env", name("other"), 0),
		made(name("host"), "root", root, unix.FAN_ONDIR),
	} {
		w.route(e)
	}
	for _, seen := range s.backlog.take(10) {
		all, _ := s.pathsOf(seen.at)
		for _, p := range all {
			w.recordName(s, p, seen.child)
		}
	}
	if len(s.denied) != 1 || s.denied[name("file")].class != filerules.Closed {
		t.Errorf("denied: %v", s.denied)
	}
	if by, ok := w.owners[beside]; !ok || len(by) > 0 {
		t.Errorf("what is beside is seen by %v, %t", by, ok)
	}
	if _, ok := w.owners[root]; ok {
		t.Error("the root of a tree was taken to be where its name is")
	}
	if at, _ := s.pathsOf(dirName{deeper, "x"}); len(at) != 1 || at[0] != "/home/a/in/er/x" {
		t.Errorf("a directory in a directory is at %v", at)
	}
}

// TestFollowMoved: where a directory was found is old once it is moved: what is made in it then has
// a denied name, and stays denied under every other.
func TestFollowMoved(t *testing.T) {
	s := newInside(t, false, false)
	must.Get(s.hold("access: {useDefaults: false, deny: ['~/secrets/**']}"))(t)
	at := func(name string) string { return filepath.Join(s.home, name) }
	put := func(name string) {
		t.Helper()
		must.Do(t, errors.Join(os.WriteFile(at(name), nil, 0o666), os.Chmod(at(name), 0o666)))
	}
	opens := func(name string, want bool) {
		t.Helper()
		expect.Equal(t, s.try(t, []string{at(name)})[0].Read, want, "%s is opened", name)
	}
	must.Do(t, os.Mkdir(at("x"), 0o777))
	put("x/before")
	opens("x/before", true) // the enforcer has read of x, and knows where it is
	must.Do(t, os.Rename(at("x"), at("secrets")))
	put("later")
	opens("later", true) // it has read of the move
	put("secrets/f")
	opens("secrets/f", false)
	must.Do(t, os.Rename(at("secrets/f"), at("g")))
	opens("g", false)
}
