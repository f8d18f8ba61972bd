package archives

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const first = chat.ArchiveName("0123456789abcdef-20261125T160000Z")

// opened is a store in a new directory; change may be nil.
func opened(t *testing.T, change func(*Options)) *Store {
	t.Helper()
	must.Root(t, "archives are root's")
	o := Options{Dir: filepath.Join(t.TempDir(), "archives"), Key: []byte("key")}
	if change != nil {
		change(&o)
	}
	s := must.Get(Open(o))(t)
	t.Cleanup(func() {
		expect.NoError(t, s.Close())
	})
	return s
}

// begun is a draft with both parts written.
func begun(t *testing.T, s *Store, name chat.ArchiveName) *Draft {
	t.Helper()
	d := must.Get(s.Begin(name))(t)
	for p, text := range map[Part]string{Home: "the home", Chat: "the rest"} {
		must.Do(t, d.write(p, strings.NewReader(text)))
		d.describe(p, "hash of "+text)
	}
	return d
}

func committed(t *testing.T, s *Store, name chat.ArchiveName) chat.Archive {
	t.Helper()
	at := time.Date(2026, 11, 25, 16, 0, 0, 0, time.UTC)
	a, err := begun(t, s, name).Commit(t.Context(), chat.Archive{
		Chat: name.ID(), Owner: "bridge", ExternalID: "telegram:1", ArchivedAt: at,
	}, []byte(`{"a": "<&>"}`))
	must.Do(t, err)
	return a
}

func filesIn(t *testing.T, s *Store) (names []string) {
	t.Helper()
	all := must.Get(os.ReadDir(s.opt.Dir))(t)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestExpiryOfAClockBehind: an archive that was made while the clock was a year behind expires by
// what was known to be over then, and says so to those who verify it; one made by a right clock has
// its own time alone.
func TestExpiryOfAClockBehind(t *testing.T) {
	s := opened(t, func(o *Options) { o.Expire = time.Hour })
	known := time.Date(2027, 11, 25, 16, 0, 0, 0, time.UTC)
	const later chat.ArchiveName = "0123456789abcdef-20261125T160001Z"
	for name, want := range map[chat.ArchiveName]time.Time{
		first: known.AddDate(-1, 0, 0), later: known.Add(-time.Hour),
	} {
		d := begun(t, s, name)
		d.NotBefore(want)
		clock := known.AddDate(-1, 0, 0)
		a, err := d.Commit(t.Context(), chat.Archive{Chat: name.ID(), ArchivedAt: clock}, []byte("{}"))
		expect.True(t, err == nil && a.ExpiresAt.Equal(want.Add(time.Hour)) && a.ArchivedAt.Equal(clock),
			"it is %+v, %v", a, err)
		m, err := s.Get(name)
		if err != nil || !m.ExpiresAt.Equal(want.Add(time.Hour)) || (m.After == nil) != (name == first) {
			t.Errorf("read again: %+v, after %v, %v", m.Archive, m.After, err)
		}
	}
}

// TestStore: an archive is there with its commit and not before, is listed and verified, has its
// time to expire from the config, and is gone with its removal.
func TestStore(t *testing.T) {
	s := opened(t, func(o *Options) { o.Expire = time.Hour })
	d := begun(t, s, first)
	expect.Is(t, expect.Err(s.Get(first)), chat.ErrNotFound, "a draft is an archive")
	expect.Is(t, expect.Err(s.Begin(first)), chat.ErrExists, "two drafts of one name")
	if err := s.Tidy(); err != nil || len(filesIn(t, s)) != 2 {
		t.Errorf("after a tidy a draft has %q, %v", filesIn(t, s), err)
	}
	if err := d.Discard(); err != nil || len(filesIn(t, s)) != 0 {
		t.Errorf("after its discard there is %q, %v", filesIn(t, s), err)
	}
	a := committed(t, s, first)
	expect.True(t, a.Size == 16 && a.ExpiresAt != nil && a.ExpiresAt.Equal(a.ArchivedAt.Add(time.Hour)),
		"it is %+v", a)
	at := time.Date(2026, 11, 25, 16, 0, 0, 1, time.UTC)
	if name := s.FreeName(first.ID(), at); name != "0123456789abcdef-20261125T160001Z" {
		t.Errorf("a second later it is %s", name)
	}
	expect.Is(t, expect.Err(s.Begin(first)), chat.ErrExists, "a draft in the place of an archive")
	for _, f := range []chat.ArchiveFilter{{}, {Owner: "bridge"}, {Chat: first.ID()}, {ExternalID: "telegram:1"}} {
		if all, err := s.List(f); err != nil || len(all) != 1 || all[0].Name != first {
			t.Errorf("%+v lists %+v, %v", f, all, err)
		}
	}
	for _, f := range []chat.ArchiveFilter{{Owner: "other"}, {Chat: "fedcba9876543210"}, {ExternalID: "x"}} {
		if all, err := s.List(f); err != nil || len(all) != 0 {
			t.Errorf("%+v lists %+v, %v", f, all, err)
		}
	}
	if c, err := s.Verify(t.Context(), first); err != nil || c.Size != 16 {
		t.Errorf("verified %+v, %v", c, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, expect.Err(s.Verify(ctx, first)), context.Canceled, "without its caller")
	if err := errors.Join(d.Discard(), s.Tidy()); err != nil || len(filesIn(t, s)) != 3 {
		t.Errorf("an archive has %q, %v", filesIn(t, s), err)
	}
	if err := s.Remove(first); err != nil || len(filesIn(t, s)) != 0 {
		t.Errorf("after its removal there is %q, %v", filesIn(t, s), err)
	}
	expect.Is(t, s.Remove(first), chat.ErrNotFound, "removed twice")
}

// TestFreeNameOfNone: a directory that cannot be read holds nobody up.
func TestFreeNameOfNone(t *testing.T) {
	s := opened(t, nil)
	lost := &Store{opt: s.opt, drafts: map[chat.ArchiveName]bool{}}
	var err error
	if lost.root, err = os.OpenRoot(s.opt.Dir); err != nil {
		t.Fatal(err)
	}
	must.Do(t, lost.Close())
	name := lost.FreeName(first.ID(), time.Date(2026, 11, 25, 16, 0, 0, 0, time.UTC))
	if _, err := lost.Begin(name); name != first || err == nil {
		t.Errorf("%s is begun: %v", name, err)
	}
}

// TestTampered: whatever is changed of an archive, it is not taken for what was archived.
func TestTampered(t *testing.T) {
	const other = chat.ArchiveName("0123456789abcdef-20261125T170000Z")
	path := func(s *Store, end string) string { return filepath.Join(s.opt.Dir, string(first)+end) }
	edit := func(end, from, to string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			text, err := os.ReadFile(path(s, end))
			if err == nil {
				changed := bytes.Replace(text, []byte(from), []byte(to), 1)
				must.True(t, !bytes.Equal(changed, text), "%q is not in %s", from, text)
				err = os.WriteFile(path(s, end), changed, 0o600)
			}
			must.Do(t, err)
		}
	}
	try := func(err error) func(*testing.T, *Store) {
		return func(t *testing.T, _ *Store) {
			must.Do(t, err)
		}
	}
	for name, tamper := range map[string]func(*testing.T, *Store){
		"an owner":        edit(".json", `"owner": "bridge"`, `"owner": "mallory"`),
		"the record":      edit(".json", `"a"`, `"b"`),
		"an unknown key":  edit(".json", `"format": 1,`, `"format": 1, "x": 2,`),
		"a later format":  edit(".json", `"format": 1,`, `"format": 2,`),
		"no MAC":          edit(".json", `"mac"`, `"Mac_"`),
		"a bit of a home": edit(".home", "home", "hole"),
		"a longer home":   edit(".home", "home", "home "),
		"a shorter chat":  edit(".chat", "rest", "res"),
		"not JSON":        edit(".json", "{", "["),
		"parts swapped": func(t *testing.T, s *Store) {
			try(errors.Join(os.Rename(path(s, ".home"), path(s, ".x")), os.Rename(path(s, ".chat"), path(s, ".home")),
				os.Rename(path(s, ".x"), path(s, ".chat"))))(t, s)
		},
		"a part is lost": func(t *testing.T, s *Store) { try(os.Remove(path(s, ".home")))(t, s) },
		"a fifo": func(t *testing.T, s *Store) {
			try(errors.Join(os.Remove(path(s, ".home")), unix.Mkfifo(path(s, ".home"), 0o600)))(t, s)
		},
		"a link": func(t *testing.T, s *Store) {
			try(errors.Join(os.Rename(path(s, ".home"), path(s, ".x")), os.Symlink(path(s, ".x"), path(s, ".home"))))(t, s)
		},
		"another's name": func(t *testing.T, s *Store) {
			committed(t, s, other)
			for _, end := range []string{".json", ".home", ".chat"} {
				try(os.Rename(filepath.Join(s.opt.Dir, string(other)+end), path(s, end)))(t, s)
			}
		},
		"another key": func(t *testing.T, s *Store) { s.opt.Key = []byte("another") },
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, nil)
			committed(t, s, first)
			tamper(t, s)
			_, err := s.Verify(t.Context(), first)
			expect.True(t, err != nil, "it is as it was archived")
		})
	}
}

// TestDamagedIsListed: an archive that cannot be used hides no other.
func TestDamagedIsListed(t *testing.T) {
	s := opened(t, nil)
	const other = chat.ArchiveName("0123456789abcdef-20261125T170000Z")
	committed(t, s, first)
	committed(t, s, other)
	must.Do(t, os.WriteFile(filepath.Join(s.opt.Dir, string(other)+".json"), []byte("{}"), 0o600))
	all, err := s.List(chat.ArchiveFilter{})
	if len(all) != 1 || all[0].Name != first || err == nil || !strings.Contains(err.Error(), string(other)) {
		t.Errorf("listed are %+v, %v", all, err)
	}
}

// TestTidy: what a killed chatd left of drafts is removed, and nothing else.
func TestTidy(t *testing.T) {
	s := opened(t, nil)
	committed(t, s, first)
	const dead = "fedcba9876543210-20261125T160000Z"
	for _, name := range []string{
		dead + ".home.part", dead + ".chat", dead + ".json.part", string(first) + ".home.part",
		"notes.txt", dead + ".home.gz", "x.home.part",
	} {
		must.Do(t, os.WriteFile(filepath.Join(s.opt.Dir, name), nil, 0o600))
	}
	err := s.Tidy()
	want := []string{string(first) + ".chat", string(first) + ".home", string(first) + ".json",
		dead + ".home.gz", "notes.txt", "x.home.part"}
	if got := filesIn(t, s); err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("there are %q, %v, want %q", got, err, want)
	}
}

// TestOpenRefuses: the directory is root's alone.
func TestOpenRefuses(t *testing.T) {
	s := opened(t, nil)
	if fi, err := os.Stat(s.opt.Dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("its mode is %v, %v", fi.Mode(), err)
	}
	dir := filepath.Join(t.TempDir(), "theirs")
	must.Do(t, errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 4242, 4242)))
	if s, err := Open(Options{Dir: dir}); err == nil {
		t.Error("another user's directory is used")
		s.Close()
	}
	if s, err := Open(Options{Dir: "/dev/null/x"}); err == nil {
		t.Error("what is no directory is used")
		s.Close()
	}
}
