package enforce

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSwappedPrefix: a pattern goes through a link of the chat's, and the chat makes that
// link lead elsewhere and back for 10 s while its session is looked at again and again.
// What the link led to when the rules came stays denied, under each of its names; what
// it leads to now and then is denied once that was seen, and for good; what no rule is
// about, and what a path that is read in between would name, stay as they are.
func TestSwappedPrefix(t *testing.T) {
	s := newInside(t, false, false)
	at := func(name string) string { return filepath.Join(s.home, name) }
	for _, name := range []string{"a/in/secret", "b/in/free", "b/in/secret", "c/in/secret"} {
		makeFree(t, at(name))
	}
	must.Do(t, os.Symlink("a", at("link")))
	must.Do(t, os.Symlink("b", at("other")))
	for _, name := range []string{"link", "other"} {
		must.Do(t, os.Lchown(at(name), testUID, testUID))
	}
	must.Get(s.applyRules("access: {useDefaults: false, deny: [~/link/in/secret, '**/again/**']}"))(t)
	stop, swapped := make(chan bool), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				swapped <- n
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at("link"), unix.AT_FDCWD, at("other"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	looks, followed, long := 0, false, 10*time.Second
	if testing.Short() {
		long = 3 * time.Second
	}
	began := time.Now()
	more := func() bool {
		took := time.Since(began)
		return took < long || !followed && took < longEnough
	}
	for ; more(); looks++ {
		makeFree(t, at(fmt.Sprintf("again/%d", looks))) // the enforcer looks by itself, too
		must.Do(t, s.k.apply(s.k.named(s.order.Chat), nil))
		got := s.try(t, []string{at("a/in/secret"), at("b/in/free"), at("b/in/secret"), at("c/in/secret")})
		if got[0] != (openResult{}) {
			t.Fatalf("look %d: what was denied is open: %+v", looks, got[0])
		}
		free := openResult{true, true, true}
		if got[1] != free || got[3] != free {
			t.Fatalf("look %d: what no rule is about is denied: %+v", looks, got[1:])
		}
		if followed && got[2].Read {
			t.Fatalf("look %d: what the link was seen to lead to is open again: %+v", looks, got[2])
		}
		followed = followed || got[2] == openResult{}
	}
	close(stop)
	n := <-swapped
	expect.True(t, n >= looks && looks != 0, "%d swaps, %d looks", n, looks)
	expect.True(t, followed, "where the link led meanwhile was never seen")
}

// linkTo makes a link of the chat's in its home, in the place of one that is there.
func (s *inside) linkTo(t *testing.T, target, name string) {
	t.Helper()
	at := filepath.Join(s.home, name)
	must.Do(t, os.Symlink(target, at+".new"))
	must.Do(t, os.Lchown(at+".new", testUID, testUID))
	must.Do(t, os.Rename(at+".new", at))
}

// comesToBe waits until a file of the home is open, or closed.
func (s *inside) comesToBe(t *testing.T, name string, open bool) {
	t.Helper()
	for until := time.Now().Add(longEnough); s.try(t, []string{filepath.Join(s.home, name)})[0].Read != open; time.Sleep(5 * time.Millisecond) {
		must.True(t, !time.Now().After(until), "%s does not come to be open: %t", name, open)
	}
}

// TestLinkMadeLater: a chat makes a link under a denied name while its session is up: what it
// leads to is denied soon after, as it would be from the next session on; by a link behind the
// link as well. What was denied before stays so, and the chat cannot lock itself out.
func TestLinkMadeLater(t *testing.T) {
	s := newInside(t, false, false)
	for _, name := range []string{"first", "second", "third", "free"} {
		makeFree(t, filepath.Join(s.home, name, "k"))
	}
	must.Get(s.applyRules("access: {useDefaults: false, deny: [~/keys/**]}"))(t)
	s.comesToBe(t, "first/k", true)
	s.linkTo(t, "first", "keys")
	s.comesToBe(t, "first/k", false)
	s.linkTo(t, "second", "mid")
	s.linkTo(t, "mid", "keys")
	s.comesToBe(t, "second/k", false)
	s.linkTo(t, "third", "mid")
	s.comesToBe(t, "third/k", false)
	for _, everything := range []string{"/", s.home, "/proc", "/usr", ".."} {
		s.linkTo(t, everything, "keys")
		must.Do(t, s.k.apply(s.k.named(s.order.Chat), nil))
	}
	s.comesToBe(t, "free/k", true)
	for _, name := range []string{"first/k", "second/k", "third/k"} {
		s.comesToBe(t, name, false)
	}
	// A later worker knows it, too.
	old := s.k.named(s.order.Chat)
	if saved := (pathclass.Links{To: old.linkTargets.To}); len(saved.To[filepath.Join(s.home, "keys")]) != 3 {
		t.Errorf("it is known to have led to %v", saved.To)
	}
}

// TestManyLinks: where a chat's links lead is followed so often and no further, and nothing
// that was denied is opened by more of them.
func TestManyLinks(t *testing.T) {
	s := newInside(t, false, false)
	const more = pathclass.MaxLinkTargets + 10
	for i := range more {
		makeFree(t, filepath.Join(s.home, fmt.Sprint(i), "k"))
	}
	must.Get(s.applyRules("access: {useDefaults: false, deny: [~/keys/**]}"))(t)
	k := s.k.named(s.order.Chat)
	for i := range more {
		s.linkTo(t, fmt.Sprint(i), "keys")
		k.relink.Store(true)
		must.Do(t, s.k.apply(k, nil))
	}
	var paths []string
	for i := range more {
		paths = append(paths, filepath.Join(s.home, fmt.Sprint(i), "k"))
	}
	closed := 0
	for i, got := range s.try(t, paths) {
		if !got.Read {
			closed++
		} else if i < pathclass.MaxLinkTargets {
			t.Errorf("%s is open", paths[i])
		}
	}
	expect.True(t, closed == pathclass.MaxLinkTargets,
		"%d are closed, want %d", closed, pathclass.MaxLinkTargets)
}

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
	for _, seen := range s.backlog.events.take(10) {
		all, _ := s.pathsOf(seen.at)
		for _, p := range all {
			w.recordName(s, p, seen.child)
		}
	}
	expect.True(t, len(s.denied) == 1 && s.denied[name("file")].class == filerules.Closed,
		"denied: %v", s.denied)
	by, ok := w.owners[beside]
	expect.True(t, ok && len(by) == 0, "what is beside is seen by %v, %t", by, ok)
	_, ok = w.owners[root]
	expect.True(t, !ok, "the root of a tree was taken to be where its name is")
	at, _ := s.pathsOf(dirName{deeper, "x"})
	expect.True(t, len(at) == 1 && at[0] == "/home/a/in/er/x", "a directory in a directory is at %v", at)
}

// TestFollowMoved: where a directory was found is old once it is moved: what is made in it then has
// a denied name, and stays denied under every other.
func TestFollowMoved(t *testing.T) {
	s := newInside(t, false, false)
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['~/secrets/**']}"))(t)
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
