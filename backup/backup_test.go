package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

var (
	uids   = state.Range{Low: 100000, High: 100999} // blocks of 62
	bridge = chat.Caller{Name: "bridge", UID: 1000, Role: chat.RoleBridge}
	root   = chat.Caller{Name: "root", Role: chat.RoleOperator}
)

func event(action, outcome string) state.Event {
	return state.Event{Action: action, Outcome: outcome, Caller: bridge}
}

func opened(t testing.TB, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(state.Options{Dir: dir, UIDs: uids, BlockSize: uids.BlockSize()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func admit(t testing.TB, s *state.Store, name string) state.Record {
	t.Helper()
	_, _, err := s.EnsureBlock(chat.DefaultProfile)
	must(t, err)
	r, created, err := s.Admit(chat.Spec{ExternalID: name}, event("create", "intent"))
	if err != nil || !created {
		t.Fatalf("%s: created %v, %v", name, created, err)
	}
	return r
}

func reap(t testing.TB, s *state.Store, id chat.ID) {
	t.Helper()
	must(t, s.SetPhase(id, chat.Reaping, event("reap", "intent")),
		s.Forget(id, event("reap", "done")))
}

// made is a backup of a store with the chats a and b, which is open and goes on.
func made(t testing.TB) (file []byte, s *state.Store, dir string) {
	t.Helper()
	dir = t.TempDir()
	s = opened(t, dir)
	t.Cleanup(func() { must(t, s.Close()) })
	for _, name := range []string{"a", "b"} {
		admit(t, s, name)
	}
	must(t, s.Flush())
	config := filepath.Join(t.TempDir(), "my.yaml")
	must(t, os.WriteFile(config, []byte("homes: /h\n"), 0o600))
	var b bytes.Buffer
	m, err := Make(t.Context(), &b, Options{State: dir, Config: []string{config}, Chatd: "1.2"})
	if err != nil || m.Chats != 2 || m.Given != 2 || m.AuditSeq == 0 ||
		m.Config["config/chatd.yaml"] != config ||
		len(m.Files) != 4 {
		t.Fatalf("%+v, %v", m, err)
	}
	return b.Bytes(), s, dir
}

func restore(t testing.TB, file []byte, o RestoreOptions) (Restored, error) {
	t.Helper()
	if o.UIDs == (state.Range{}) {
		o.UIDs = uids
	}
	o.By = root
	return Restore(t.Context(), bytes.NewReader(file), o)
}

// TestRoundTrip: a backup of a running store, put into an empty directory, has its chats, key and
// log; the restore is in the log, and the key derives the same ids.
func TestRoundTrip(t *testing.T) {
	file, s, _ := made(t)
	a, err := s.Find("bridge", "a")
	must(t, err)
	to := filepath.Join(t.TempDir(), "state")
	r, err := restore(t, file, RestoreOptions{State: to})
	if err != nil || r.Aside != "" || r.Exact || r.FirstUID <= a.UID || r.Manifest.Chatd != "1.2" {
		t.Fatalf("%+v, %v", r, err)
	}
	got := opened(t, to)
	defer func() { must(t, got.Close()) }()
	if same, err := got.Find("bridge", "a"); err != nil || !reflect.DeepEqual(same, a) {
		t.Errorf("%+v, %v, want %+v", same, err, a)
	}
	lines, err := got.VerifyAudit()
	log, rerr := os.ReadFile(filepath.Join(to, "audit.jsonl"))
	if must(t, err, rerr); lines < int(r.Manifest.AuditSeq)+2 ||
		!strings.Contains(string(log), `"action":"restore","outcome":"done"`) {
		t.Errorf("%d lines: %s", lines, log)
	}
	c, d := admit(t, got, "c"), admit(t, s, "c")
	if c.ID != d.ID || c.UID < r.FirstUID {
		t.Errorf("chat %s with uid %d, want %s and at least %d", c.ID, c.UID, d.ID, r.FirstUID)
	}
	if m, err := Read(t.Context(), bytes.NewReader(file)); err != nil || m.Chats != 2 {
		t.Errorf("Read: %+v, %v", m, err)
	}
}

// TestNoUIDTwice: whatever is left of the state since the backup, no uid that was given then is
// given by the restored one.
func TestNoUIDTwice(t *testing.T) {
	for what, c := range map[string]struct {
		lose   func(t *testing.T, dir string)
		traces bool
		last   bool
		exact  bool
	}{
		"all of it":              {lose: func(*testing.T, string) {}, exact: true},
		"all, a home is younger": {lose: func(*testing.T, string) {}, traces: true},
		"no database":            {lose: lose("chatd.db")},
		"a damaged database": {lose: func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, "chatd.db"), 9000))
		}},
		"another key":                 {lose: func(t *testing.T, dir string) { put(t, dir, "install.key", strings.Repeat("k", 32)) }},
		"nothing":                     {lose: lose("chatd.db", "install.key", "audit.jsonl")},
		"nothing, a home has the uid": {lose: lose("chatd.db", "install.key", "audit.jsonl"), traces: true},
		"nothing, the operator knows": {lose: lose("chatd.db", "install.key", "audit.jsonl"), last: true, exact: true},
	} {
		t.Run(what, func(t *testing.T) {
			file, s, dir := made(t)
			given := map[uint32]bool{}
			var last uint32
			for i := range 80 { // beyond the block of the backup
				r := admit(t, s, fmt.Sprint("later ", i))
				given[r.UID], last = true, max(last, r.UID)
				if i%2 == 0 {
					reap(t, s, r.ID)
				}
			}
			must(t, s.Close())
			c.lose(t, dir)
			o := RestoreOptions{State: dir, Replace: true}
			if c.traces {
				last += 50
				given[last] = true
				o.Traces = []uint32{0, last, 4_000_000_000}
			}
			if c.last {
				o.LastUID = last
			}
			r, err := restore(t, file, o)
			if err != nil || r.Exact != c.exact {
				t.Fatalf("%+v, %v; want exact %v", r, err, c.exact)
			}
			got := opened(t, dir)
			defer func() { must(t, got.Close()) }()
			if got.Len() != 2 {
				t.Errorf("%d chats", got.Len())
			}
			for i := range 100 {
				if n := admit(t, got, fmt.Sprint("after ", i)); given[n.UID] || n.UID < r.FirstUID {
					t.Fatalf("uid %d is given again; the first should be %d", n.UID, r.FirstUID)
				}
			}
			for uid := range given {
				if !got.WasGiven(uid) {
					t.Errorf("uid %d counts as never given: its files keep chatd from starting",
						uid)
				}
			}
		})
	}
}

func lose(names ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		for _, name := range names {
			must(t, os.Remove(filepath.Join(dir, name)))
		}
	}
}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// TestRestoreRefuses: a range without uids that were surely never given, and a last uid that cannot
// be; the state that was there stays.
func TestRestoreRefuses(t *testing.T) {
	file, s, dir := made(t)
	must(t, s.Close())
	small := state.Range{Low: 100000, High: 100062}
	for what, c := range map[string]struct {
		o    RestoreOptions
		want error
		text string
	}{
		"a state is there": {RestoreOptions{State: dir}, chat.ErrExists, "want a directory without one, or --replace"},
		"no uids left":     {RestoreOptions{State: t.TempDir(), UIDs: small, LastUID: 100061}, chat.ErrBusy, "--last-uid"},
		"last too low":     {RestoreOptions{State: dir, Replace: true, LastUID: 100000}, chat.ErrInvalid, "uid 100001 was given"},
		"last outside":     {RestoreOptions{State: dir, Replace: true, LastUID: 5}, chat.ErrInvalid, "want one of 100000-100999"},
	} {
		before := tree(t, c.o.State)
		_, err := restore(t, file, c.o)
		if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "cannot ") ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", what, err)
		}
		if after := tree(t, c.o.State); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: changed:\n%v\n%v", what, before, after)
		}
	}
	s = opened(t, dir)
	defer func() { must(t, s.Close()) }()
	if _, err := restore(t, file, RestoreOptions{State: dir, Replace: true}); !errors.Is(err,
		chat.ErrBusy) {
		t.Errorf("beside a daemon: %v", err)
	}
}

// tree is what is below dir, but for the lock.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" {
			if d.IsDir() && path != dir {
				m[path] = "directory"
			}
			return err
		}
		b, err := os.ReadFile(path)
		m[path] = fmt.Sprintf("%x", sha256.Sum256(b))
		return err
	}))
	return m
}

// entry is one entry of a hostile archive.
type entry struct {
	tar.Header
	text []byte
}

// entries are those of an archive.
func entries(t testing.TB, file []byte) (all []entry) {
	t.Helper()
	for in := tar.NewReader(bytes.NewReader(file)); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		must(t, err)
		b, err := io.ReadAll(in)
		must(t, err)
		all = append(all, entry{*h, b})
	}
}

func packed(t testing.TB, all []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, e := range all {
		must(t, out.WriteHeader(&e.Header))
		_, err := out.Write(e.text)
		must(t, err)
	}
	must(t, out.Close())
	return b.Bytes()
}

// listed changes the manifest of an archive.
func listed(t testing.TB, all []entry, edit func(*Manifest)) []entry {
	t.Helper()
	var m Manifest
	must(t, json.Unmarshal(all[0].text, &m))
	edit(&m)
	text, err := json.Marshal(m)
	must(t, err)
	all[0].text, all[0].Size = text, int64(len(text))
	return all
}

func entryOf(name string, typ byte, text string) entry {
	return entry{
		tar.Header{Name: name, Typeflag: typ, Size: int64(len(text)), Mode: 0o600},
		[]byte(text),
	}
}

// hostile is an archive that is not as Make writes it, and what the error says of it.
type hostile struct {
	what string
	make func(all []entry) []byte
	want string
}

// ofManifest changes the manifest alone.
func ofManifest(t *testing.T, what, want string, edit func(m *Manifest)) hostile {
	return hostile{what, func(all []entry) []byte { return packed(t, listed(t, all, edit)) }, want}
}

// ofText changes the text of an entry, and the hash in the manifest with it.
func ofText(t *testing.T, what, want string, i int, edit func([]byte) []byte) hostile {
	return hostile{what, func(all []entry) []byte {
		all[i].text = edit(all[i].text)
		all[i].Size = int64(len(all[i].text))
		sum := sha256.Sum256(all[i].text)
		return packed(t, listed(t, all, func(m *Manifest) {
			m.Files[i-1].SHA256, m.Files[i-1].Size = hex.EncodeToString(sum[:]), all[i].Size
		}))
	}, want}
}

func hostileManifests(t *testing.T) []hostile {
	rename := func(i int, name string) func(*Manifest) {
		return func(m *Manifest) { m.Files[i].Name = name }
	}
	size := func(i int, size int64) func(*Manifest) {
		return func(m *Manifest) { m.Files[i].Size = size }
	}
	const noFile = "which is no file of a state or config"
	return []hostile{
		{"a manifest of a list", func([]entry) []byte {
			return packed(t, []entry{entryOf(manifest, tar.TypeReg, "[1]")})
		}, "its manifest"},
		{"a huge manifest", func([]entry) []byte {
			text := strings.Repeat(" ", maxManifest+1)
			return packed(t, []entry{entryOf(manifest, tar.TypeReg, text)})
		}, "want at most 1048576"},
		ofManifest(t, "a path upwards", `it lists "../chatd.db", `+noFile, rename(0, "../chatd.db")),
		ofManifest(t, "an absolute path", noFile, rename(0, "/etc/passwd")),
		ofManifest(t, "a folder of the config", noFile, rename(3, "config/../../x")),
		ofManifest(t, "a name with a newline", noFile, rename(0, "chatd.db\n")),
		ofManifest(t, "the lock", noFile, rename(0, "lock")),
		ofManifest(t, "one name twice", `it lists "chatd.db" twice`, func(m *Manifest) {
			m.Files = append(m.Files, m.Files[0])
		}),
		ofManifest(t, "no key", "it lists no install.key", rename(1, "config/x")),
		ofManifest(t, "no hash", "no SHA-256 of install.key", func(m *Manifest) {
			m.Files[1].SHA256 = ""
		}),
		ofManifest(t, "a size below 0", "with -1 bytes", size(1, -1)),
		ofManifest(t, "a huge size", "it lists install.key with", size(1, 1<<62)),
		ofManifest(t, "more than the disk has", "are free", size(2, 1<<40)),
		ofManifest(t, "a huge config", "it lists config/chatd.yaml with", size(3, maxConfig+1)),
		ofManifest(t, "too many files", "want at most", func(m *Manifest) {
			m.Files = make([]Entry, maxFiles+1)
		}),
		ofManifest(t, "another form", "it has form 2, this chatd reads form 1", func(m *Manifest) {
			m.Form = 2
		}),
		ofManifest(t, "a later version",
			`state of version 99, which chatd "1.2" wrote: this chatd knows version 5 alone`,
			func(m *Manifest) { m.State = 99 }),
		ofManifest(t, "a former version, it says", "knows version 5 alone",
			func(m *Manifest) { m.State = 1 }),
		ofManifest(t, "another head", "not the one that its manifest describes",
			func(m *Manifest) { m.AuditSeq++ }),
	}
}

func hostileEntries(t *testing.T, file []byte) []hostile {
	key := func(e entry) func([]entry) []byte {
		return func(all []entry) []byte { all[2] = e; return packed(t, all) }
	}
	link := entryOf("install.key", tar.TypeSymlink, "")
	link.Linkname = "/etc/passwd"
	hard := entryOf("install.key", tar.TypeLink, "")
	hard.Linkname = "chatd.db"
	more := func(e entry) func([]entry) []byte {
		return func(all []entry) []byte { return packed(t, append(all, e)) }
	}
	raw := func(b []byte) func([]entry) []byte { return func([]entry) []byte { return b } }
	const notListed = "which its manifest does not list"
	return []hostile{
		{"empty", raw(nil), "it ends before manifest.json"},
		{"no archive", raw([]byte(strings.Repeat("no tar at all. ", 100))),
			"it is no archive where manifest.json"},
		{"no manifest", func(all []entry) []byte { return packed(t, all[1:]) },
			`it has "chatd.db" where manifest.json`},
		{"a symbolic link", key(link), "install.key is no regular file"},
		{"a hard link", key(hard), "install.key is no regular file"},
		{"a device", key(entryOf("install.key", tar.TypeChar, "")), "install.key is no regular file"},
		{"one more file", more(entryOf("etc/x", tar.TypeReg, "x")), `it has "etc/x", ` + notListed},
		{"one twice", more(entryOf("chatd.db", tar.TypeReg, "x")), `it has "chatd.db", ` + notListed},
		{"another order", func(all []entry) []byte {
			all[1], all[2] = all[2], all[1]
			return packed(t, all)
		}, `it has "install.key" where chatd.db should be`},
		{"one missing", func(all []entry) []byte { return packed(t, all[:3]) },
			"it ends before audit.jsonl"},
		{"a shorter file", func(all []entry) []byte {
			all[3].text, all[3].Size = all[3].text[:10], 10
			return packed(t, all)
		}, "audit.jsonl has 10 bytes, its manifest says"},
		{"a changed byte", func(all []entry) []byte {
			all[1].text[20_000] ^= 1
			return packed(t, all)
		}, "the SHA-256 of chatd.db is not"},
		ofText(t, "another key", "not the key of the database", 2, func([]byte) []byte {
			return bytes.Repeat([]byte("k"), 32)
		}),
		ofText(t, "a changed log", "its prev is not the hash", 3, func(b []byte) []byte {
			return bytes.Replace(b, []byte("bridge"), []byte("brigde"), 1)
		}),
		ofText(t, "a shorter log", "as written", 3, func(b []byte) []byte {
			return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1]
		}),
		ofText(t, "a database of noise", "is damaged", 1, func(b []byte) []byte {
			for i := 8192; i < len(b); i++ {
				b[i] = byte(i * 7)
			}
			return b
		}),
		ofText(t, "a shorter database", "is damaged", 1, func(b []byte) []byte { return b[:9000] }),
		{"cut in the middle", raw(file[:len(file)/2]), "it ends in chatd.db, after"},
		{"cut in a header", raw(file[:700]), "its manifest: unexpected EOF"},
		{"more behind the end", raw(append(bytes.Clone(file), "more"...)), "it goes on behind its end"},
	}
}

// TestHostileArchives: whatever is in an archive, the error names it, has a kind, and no file of the
// state directory, nor one outside, changes.
func TestHostileArchives(t *testing.T) {
	file, s, dir := made(t)
	must(t, s.Close())
	outside := filepath.Dir(dir)
	for _, c := range append(hostileManifests(t), hostileEntries(t, file)...) {
		before := tree(t, outside)
		_, err := restore(t, c.make(entries(t, file)), RestoreOptions{State: dir, Replace: true})
		if err == nil {
			t.Fatalf("%s: restored", c.what)
		}
		kind := errors.Is(err, chat.ErrInvalid) || errors.Is(err, chat.ErrUnsupported) ||
			errors.Is(err, chat.ErrBusy)
		if !kind || !strings.HasPrefix(err.Error(), "cannot ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.what, err, c.want)
		}
		if after := tree(t, outside); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: changed:\n%v\n%v", c.what, before, after)
		}
	}
	if _, err := restore(t, file, RestoreOptions{State: dir, Replace: true}); err != nil {
		t.Errorf("control: the archive as it was made: %v", err)
	}
}

// TestCutAnywhere: an archive that ends early is refused, wherever it ends.
func TestCutAnywhere(t *testing.T) {
	file, _, _ := made(t)
	for size := 0; size < len(file); size += len(file)/40 + 1 {
		_, err := Read(t.Context(), bytes.NewReader(file[:size]))
		if whole := len(bytes.TrimRight(file[size:], "\x00")) == 0; err == nil && !whole ||
			err != nil && !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("cut to %d of %d bytes: %v", size, len(file), err)
		}
	}
}

// FuzzOpen reads the manifest of any archive: an error, or one whose names are files of a state or
// config.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"chatd_backup":1,"files":[]}`))
	f.Add(
		[]byte(
			`{"chatd_backup":1,"files":[{"name":"chatd.db","size":1,"sha256":"` + strings.Repeat("0",
				64) + `"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := open(bytes.NewReader(packed(t, []entry{entryOf(manifest, tar.TypeReg, string(text))})))
		if err != nil {
			if !errors.Is(err, chat.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		for _, e := range r.Files {
			if filepath.IsAbs(e.Name) || strings.Contains(e.Name, "..") || e.Size < 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}
