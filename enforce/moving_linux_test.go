package enforce

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackMoving: a directory that is moved on and on is found whenever it is looked for, in the
// mount where it is, and is not taken to be elsewhere; one that lies outside, or is gone, is.
func TestAttackMoving(t *testing.T) {
	s := idle(t)
	a, b, f := filepath.Join(s.home, "a"), filepath.Join(s.home, "b"), "a/d/f"
	makeFree(t, filepath.Join(s.home, f))
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/.env']}"))(t)
	watched := s.k.named(s.order.Chat).watched
	home, ok := watched.treeOf(s.home)
	must.True(t, ok && home.Path == s.home, "the home is in %s", home.Path)
	dir := must.Get(handleAt(filepath.Join(a, "d"), home.fsid))(t)
	fd := must.Get(sys.OpenBeneath(home.Tree, f, unix.O_RDONLY))(t)
	defer unix.Close(fd)
	for range moving(t, a, b) {
		if at, err := home.pathOf(dir); err != nil || at != "/a/d" && at != "/b/d" {
			t.Fatalf("the directory is at %q: %v", at, err)
		}
	}
	for _, elsewhere := range []string{filepath.Dir(s.home), s.home + "-shm"} {
		h := must.Get(handleAt(elsewhere, home.fsid))(t)
		at, err := home.pathOf(h)
		expect.True(t, errors.Is(err, errElsewhere), "%s is at %q: %v", elsewhere, at, err)
	}
	must.Do(t, errors.Join(os.RemoveAll(a), os.RemoveAll(b)))
	if at, err := home.pathOf(dir); !errors.Is(err, errElsewhere) && at == "" {
		t.Errorf("what is gone is at %q: %v", at, err)
	}
}

// TestAttackWay: the way to a file that is asked about leads to that file, however it is moved
// meanwhile: every directory on it has been waited for.
func TestAttackWay(t *testing.T) {
	s := idle(t)
	a, b := filepath.Join(s.home, "a"), filepath.Join(s.home, "b")
	makeFree(t, filepath.Join(a, "d/f"))
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/.env']}"))(t)
	w := s.k.watch
	watched := s.k.named(s.order.Chat).watched
	home, _ := watched.treeOf(s.home)
	var around []handle
	for _, dir := range []string{a, filepath.Join(a, "d")} {
		h := must.Get(handleAt(dir, home.fsid))(t)
		around = append(around, h)
	}
	fd := s.openAsInside(t, filepath.Join(a, "d/f"))
	found := 0
	for range moving(t, a, b) {
		at, known := w.locate(watched, fd)
		if !known {
			continue // it is refused
		}
		found++
		must.True(t, slices.Equal(at.dirs, around),
			"the way to %s is %q, want %q", at.path, at.dirs, around)
	}
	expect.True(t, found != 0, "control: it was never found")
}

// TestNamedDeleted: a directory whose name ends as the kernel marks what was removed is found all
// the same: what had a denied name in it stays denied under every other.
func TestNamedDeleted(t *testing.T) {
	s := newInside(t, true, false)
	dir := filepath.Join(s.home, "d (deleted)")
	must.Do(t, os.Mkdir(dir, 0o777))
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/.env']}"))(t)
	makeFree(t, filepath.Join(dir, ".env"))
	must.Do(t, os.Rename(filepath.Join(dir, ".env"), filepath.Join(dir, "open")))
	makeFree(t, filepath.Join(dir, "other"))
	got := s.reads(t, "d (deleted)/open", "d (deleted)/other")
	expect.True(t, slices.Equal(got, []bool{false, true}), "what was .env and another file are read: %v", got)
}

// TestMaskMountsStay: by the same rules nothing is unmasked because a directory around it has
// another name now, or because a look missed it: neither the file nor what is another name of it.
func TestMaskMountsStay(t *testing.T) {
	s := newInside(t, false, false)
	s.k.watch.noNames = true
	at := func(name string) string { return filepath.Join(s.home, name) }
	must.Do(t, errors.Join(os.MkdirAll(at("d/inner"), 0o777), os.MkdirAll(at("d/kept"), 0o777)))
	for _, name := range []string{"d/inner/f", "d/kept/f", "d/inner/linked"} {
		makeFree(t, at(name))
	}
	must.Do(t, os.Link(at("d/inner/linked"), at("link")))
	const rules = `access: {useDefaults: false, rules: [{deny: ~/d/inner},
  {deny: ~/d/kept, ops: [write, edit]}]}`
	first := must.Get(s.applyRules(rules))(t)
	made := s.mountsAt(t)
	must.Do(t, os.Rename(at("d"), at("e")))
	again := must.Get(s.applyRules(rules))(t)
	if now := s.mountsAt(t); !slices.Equal(now, made) || again.Masks != first.Masks || again.ReadOnly != first.ReadOnly {
		t.Errorf("the mounts are %v (%+v), were %v (%+v)", now, again, made, first)
	}
	got := s.try(t, []string{at("e/inner/f"), at("e/kept/f"), at("link")})
	for i, want := range []openResult{{}, {Read: got[1].Read}, {}} {
		expect.Equal(t, got[i], want, "%d", i)
	}
	must.Get(s.applyRules("access: {useDefaults: false, deny: [~/nothing]}"))(t)
	if got := s.reads(t, "e/inner/f", "link"); slices.Contains(got, false) {
		t.Errorf("by rules about nothing: %v", got)
	}
}

// moving yields for some time while a directory is renamed to and fro.
func moving(t *testing.T, a, b string) func(func(int) bool) {
	t.Helper()
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(a, b)
			_ = os.Rename(b, a)
		}
	}()
	end := sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(end)
	return func(yield func(int) bool) {
		defer end()
		for i, until := 0, time.Now().Add(2*time.Second); time.Now().Before(until); i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// handleAt is the handle of what is at a path of the host.
func handleAt(p, fsid string) (handle, error) {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return handleOf(fd, fsid)
}

// openAsInside opens a file of the session as a place, as the kernel's question has it open.
func (s *inside) openAsInside(t *testing.T, p string) (fd int) {
	t.Helper()
	k := s.k.named(s.order.Chat)
	must.Do(t, sys.InMountNamespace(k.ns, func() (err error) {
		fd, err = unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
		return err
	}))
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestQuickMoves: directories around a denied file are moved before the enforcer looks at any of
// it, or one after the other: what each was called is put together all the same, and a new
// compilation keeps the file closed.
func TestQuickMoves(t *testing.T) {
	const rules = `access: {useDefaults: false, deny: ["~/p/q/s"]}`
	for name, tt := range map[string]struct {
		moves  [][2]string
		atOnce bool
		file   string
	}{
		"inner first":             {[][2]string{{"p/q", "p/r"}, {"p", "o"}, {"o", "n"}}, true, "n/r/s"},
		"outer first":             {[][2]string{{"p", "o"}, {"o/q", "o/r"}, {"o", "n"}}, true, "n/r/s"},
		"inner first, one by one": {[][2]string{{"p/q", "p/r"}, {"p", "o"}, {"o", "n"}}, false, "n/r/s"},
		"outer first, one by one": {[][2]string{{"p", "o"}, {"o/q", "o/r"}, {"o", "n"}}, false, "n/r/s"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newInside(t, false, false)
			makeFree(t, filepath.Join(a.home, "p/q/s"))
			_, err := a.applyRules(rules)
			must.Do(t, err)
			w := a.k.watch
			if tt.atOnce {
				w.mu.Lock()
			}
			for _, m := range tt.moves {
				must.Do(t, os.Rename(filepath.Join(a.home, m[0]), filepath.Join(a.home, m[1])))
				if !tt.atOnce {
					a.try(t, []string{a.home}) // an open comes after the names before it
				}
			}
			if tt.atOnce {
				w.mu.Unlock()
			}
			if tt.atOnce { // nobody opens anything before
				_, err = a.applyRules(rules)
				must.Do(t, err)
			}
			for _, when := range []string{"moved", "compiled again"} {
				got := a.try(t, []string{filepath.Join(a.home, tt.file)})[0]
				expect.True(t, !got.Read && !got.Write, "%s: %+v", when, got)
				_, err = a.applyRules(rules)
				must.Do(t, err)
			}
		})
	}
}

// TestOwnTree: in a tree that the chat writes to, a closed file and directory have no mount. They
// can be renamed, moved with what is around them, linked and removed, and stay closed meanwhile.
func TestOwnTree(t *testing.T) {
	const rules = `{access: {useDefaults: false, deny: ["**/.env", "~/deep/er", "**/secrets/**"]}}`
	for name, c := range map[string]struct {
		act         func(at func(string) string) error
		closed, top string
	}{
		"renamed":         {rename(".env", "plain"), "plain", "plain"},
		"moved":           {rename("a/b/.env", "c"), "c", "c"},
		"parent moved":    {rename("a", "z"), "z/b/.env", "z"},
		"parents, twice":  {both(rename("a/b", "y"), rename("y", "x")), "x/.env", "x"},
		"linked":          {link(".env", "other"), "other", "other"},
		"linked before":   {rename("earlier", "name"), "name", "name"},
		"linked from in":  {link("secrets/k", "k2"), "k2", "k2"},
		"made in a moved": {made("secrets", "x", "x/new", "n"), "n", "x"},
		"a directory":     {rename("secrets", "open"), "open/k", "open"},
		"out of one":      {both(rename("secrets/k", "k"), rename("k", "l")), "l", "l"},
		"by a long name":  {both(rename("deep", "d"), rename("d/er", "e")), "e", "e"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newInside(t, false, false)
			at := func(name string) string { return filepath.Join(s.home, name) }
			for _, f := range []string{".env", "a/b/.env", "secrets/k", "deep/er", "free"} {
				makeFree(t, at(f))
			}
			must.Do(t, os.Link(at(".env"), at("earlier")))
			must.Get(s.applyRules(rules))(t)
			m := s.mountsAt(t)
			expect.True(t, len(m) == 0, "%d mounts are in the home", len(m))
			must.Do(t, c.act(at))
			got := s.reads(t, c.closed, "free")
			expect.True(t, slices.Equal(got, []bool{false, true}),
				"read %v, want the closed one refused alone", got)
			must.Do(t, os.RemoveAll(at(c.top)))
		})
	}
}

func rename(from, to string) func(func(string) string) error {
	return func(at func(string) string) error { return os.Rename(at(from), at(to)) }
}

func link(from, to string) func(func(string) string) error {
	return func(at func(string) string) error { return os.Link(at(from), at(to)) }
}

// made moves a directory, makes a file in it, and links that.
func made(dir, to, file, name string) func(func(string) string) error {
	return func(at func(string) string) error {
		return errors.Join(os.Rename(at(dir), at(to)), os.WriteFile(at(file), []byte("x"), 0o666),
			os.Chmod(at(file), 0o666), os.Link(at(file), at(name)))
	}
}

func both(a, b func(func(string) string) error) func(func(string) string) error {
	return func(at func(string) string) error {
		if err := a(at); err != nil {
			return err
		}
		return b(at)
	}
}
