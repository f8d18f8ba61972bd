package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// raw is the tar archive of entries as they are, without Pack's checks.
func raw(t testing.TB, all ...entry) []byte {
	t.Helper()
	var out []byte
	for _, e := range all {
		e.modified = time.Unix(1, 0)
		content := bytes.Repeat([]byte("c"), int(e.stored))
		if e.mode == 0 {
			e.mode = 0o700
		}
		header := must.Get(e.header())(t)
		out = slices.Concat(out, header, content, padding(e.stored))
	}
	return append(out, make([]byte, 2*blockSize)...)
}

func packed(t testing.TB, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := compress(&out, "")
	if err == nil {
		_, err = w.Write(plain)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type hostileArchive struct {
	plain []byte
	most  Limits // none is wide
}

// chain is directories in one another.
func chain(levels int, name string) (all []entry) {
	for path := name; len(all) < levels; path += "/" + name {
		all = append(all, entry{path: path, kind: typeDirectory})
	}
	return all
}

func hostileArchives(t *testing.T) map[string]hostileArchive {
	dir := func(path string) entry { return entry{path: path, kind: typeDirectory} }
	file := func(path string) entry { return entry{path: path, kind: typeFile, size: 3, stored: 3} }
	link := func(kind byte, path, target string) entry {
		return entry{path: path, kind: kind, target: target}
	}
	good := raw(t, dir("d"), file("d/f"))
	deep := slices.Clip(chain(40, "d"))
	bottom := deep[39].path
	foreign := func(h tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		must.Do(t, w.WriteHeader(&h))
		must.Do(t, w.Close())
		return out.Bytes()
	}
	return map[string]hostileArchive{
		"parent":        {plain: raw(t, file("../out"))},
		"parent inside": {plain: raw(t, dir("d"), file("d/../../out"))},
		"absolute":      {plain: raw(t, file("/out"))},
		"dot":           {plain: raw(t, file("./out"))},
		"empty name":    {plain: raw(t, dir("d"), file("d//f"))},
		"no name":       {plain: raw(t, file(""))},
		"NUL in a name": {plain: raw(t, file("a\x00b"))},
		"long name":     {plain: raw(t, file(strings.Repeat("n", 256)))},
		"deep, through a symlink": {plain: raw(t, append(deep, link(typeSymlink, bottom+"/s", "/"),
			file(bottom+"/s/out"))...)},
		"deep, hard link by symlink": {plain: raw(t, append(deep,
			link(typeSymlink, bottom+"/s", strings.Repeat("../", 41)), link(typeHardLink, "h", bottom+"/s/secret"))...)},
		"deep, back in directory": {plain: raw(t, append(deep, file("f"), file(bottom+"/f"))...)},
		"deep, twice":             {plain: raw(t, append(deep, file("d/f"), dir("d/d"))...)},
		"through a symlink":       {plain: raw(t, link(typeSymlink, "s", ".."), file("s/out"))},
		"over a symlink":          {plain: raw(t, link(typeSymlink, "s", "../out"), file("s"))},
		"twice":                   {plain: raw(t, file("f"), file("f"))},
		"directory twice":         {plain: raw(t, dir("d"), file("f"), dir("d"))},
		"without directory":       {plain: raw(t, file("d/f"))},
		"back in directory":       {plain: raw(t, dir("d"), file("f"), file("d/f"))},
		"hard link outside":       {plain: raw(t, link(typeHardLink, "h", "../secret"))},
		"hard link absolute":      {plain: raw(t, link(typeHardLink, "h", "/etc/passwd"))},
		"hard link by symlink": {plain: raw(t, link(typeSymlink, "s", ".."),
			link(typeHardLink, "h", "s/secret"))},
		"hard link of symlink": {plain: raw(t, link(typeSymlink, "s", "../secret"),
			link(typeHardLink, "h", "s"))},
		"hard link to nothing": {plain: raw(t, link(typeHardLink, "h", "nothing"))},
		"symlink to nothing":   {plain: raw(t, link(typeSymlink, "s", ""))},
		"character device":     {plain: raw(t, entry{path: "null", kind: '3'})},
		"block device":         {plain: raw(t, entry{path: "sda", kind: '4'})},
		"other type":           {plain: raw(t, entry{path: "x", kind: 'g'})},
		"set-uid":              {plain: raw(t, entry{path: "x", kind: typeFile, mode: 0o4755})},
		"set-gid":              {plain: raw(t, entry{path: "x", kind: typeDirectory, mode: 0o2755})},
		"FIFO with content":    {plain: raw(t, entry{path: "x", kind: typeFIFO, size: 3, stored: 3})},
		"trusted attribute": {plain: raw(t, entry{path: "x", kind: typeFile,
			attrs: map[string]string{"security.capability": "all"}})},
		"sparse without a map": {plain: raw(t, entry{path: "x", kind: typeFile, sparse: true, size: 9,
			stored: 3})},
		"goes on":          {plain: append(bytes.Clone(good), 'x')},
		"goes on in zeros": {plain: append(bytes.Clone(good), make([]byte, blockSize)...)},
		"no end":           {plain: good[:len(good)-2*blockSize]},
		"half an end":      {plain: good[:len(good)-blockSize]},
		"another form":     {plain: foreign(tar.Header{Name: "f", Mode: 0o600, Format: tar.FormatPAX})},
		"global header": {plain: foreign(tar.Header{Typeflag: tar.TypeXGlobalHeader,
			PAXRecords: map[string]string{"path": "f"}})},
		"many entries": {good, Limits{Entries: 1, Bytes: 100, FileSize: 100}},
		"many bytes":   {good, Limits{Entries: 9, Bytes: 2, FileSize: 100}},
		"large file":   {good, Limits{Entries: 9, Bytes: 100, FileSize: 2}},
	}
}

// TestHostileArchives: what leaves the tree, or is not of Pack's form, is refused, by Check and by
// Unpack, and nothing is made outside the directory.
func TestHostileArchives(t *testing.T) {
	for name, c := range hostileArchives(t) {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			to := filepath.Join(outside, "in")
			must.Do(t, os.Mkdir(to, 0o700))
			must.Do(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
			if c.most == (Limits{}) {
				c.most = wide
			}
			_, err := Unpack(openDirectory(t, to), bytes.NewReader(packed(t, c.plain)), "", c.most)
			expect.True(t, err != nil, "it is unpacked")
			for made := range describe(t, outside) {
				expect.True(t, strings.HasPrefix(made, "in/") || made == "secret" || made == "in",
					"it made %q", made)
			}
		})
	}
}

// TestFarHoles: a file of 8 EiB without content takes no longer than an empty one, and its size is
// bounded.
func TestFarHoles(t *testing.T) {
	const size = 1<<63 - 1
	table := sparseMap([]extent{{size, 0}})
	e := entry{path: "x", kind: typeFile, sparse: true, size: size, stored: int64(len(table)),
		mode: 0o600}
	header := must.Get(e.header())(t)
	plain := slices.Concat(header, []byte(table), make([]byte, 2*blockSize))
	s, err := readTar(bytes.NewReader(plain), Limits{Entries: 1, FileSize: size}, nothing{})
	expect.True(t, err == nil && s.Bytes == 0, "%+v, %v", s, err)
	_, err = readTar(bytes.NewReader(plain), Limits{Entries: 1, FileSize: size - 1}, nothing{})
	expect.Is(t, err, chat.ErrInvalid, "a file that is too large")
}

// TestSparseMaps: a map out of order, over its file or of another sum is refused.
func TestSparseMaps(t *testing.T) {
	for name, all := range map[string][]extent{
		"out of order":  {{10, 1}, {5, 1}},
		"overlapping":   {{0, 5}, {4, 1}},
		"over its file": {{90, 20}},
		"negative":      {{-1, 1}},
		"sum":           {{0, 50}},
	} {
		table := sparseMap(all)
		e := entry{path: "x", kind: typeFile, sparse: true, size: 100, stored: int64(len(table)) + 2}
		header, err := e.header()
		must.Do(t, err)
		plain := slices.Concat(header, []byte(table), []byte("cc"), padding(2),
			make([]byte, 2*blockSize))
		_, err = readTar(bytes.NewReader(plain), wide, nothing{})
		expect.Is(t, err, chat.ErrInvalid, "%s", name)
	}
}

// TestDamaged: a stream that is cut off anywhere, or with any bit flipped, is an error, or the
// same archive.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("text "), 300), 0o600))
	must.Do(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	stream, want := pack(t, dir, "")
	for i := range stream {
		expect.Is(t, expect.Err(Check(bytes.NewReader(stream[:i]), "", wide)), chat.ErrInvalid,
			"cut off after %d of %d bytes", i, len(stream))
		for bit := range 8 {
			flipped := bytes.Clone(stream)
			flipped[i] ^= 1 << bit
			got, err := Check(bytes.NewReader(flipped), "", wide)
			if err == nil && got.SHA256 != want.SHA256 || err != nil && !errors.Is(err, chat.ErrInvalid) {
				t.Errorf("bit %d of byte %d flipped: %+v, %v", bit, i, got, err)
			}
		}
	}
}

// FuzzRead: no bytes crash the reader, and what it takes for an archive is one in one form only.
func FuzzRead(f *testing.F) {
	table := sparseMap([]extent{{4, 2}, {100, 0}})
	f.Add(raw(f, entry{path: "d", kind: typeDirectory, attrs: map[string]string{"user.=%": "v"}},
		entry{path: "d/f", kind: typeFile, size: 3, stored: 3}))
	f.Add(raw(f, entry{path: "s", kind: typeSymlink, target: "t"}))
	sparse := entry{path: "x", kind: typeFile, sparse: true, size: 100, stored: int64(len(table)) + 2}
	header := must.Get(sparse.header())(f)
	f.Add(slices.Concat(header, []byte(table), []byte("cc"), padding(2), make([]byte, 2*blockSize)))
	f.Fuzz(func(t *testing.T, plain []byte) {
		var again bytes.Buffer
		to := newWriter(&again)
		_, err := readTar(bytes.NewReader(plain), wide, to)
		if err != nil {
			expect.Is(t, err, chat.ErrInvalid, "the error")
			return
		}
		if err := to.end(); err != nil || !bytes.Equal(plain, again.Bytes()) {
			t.Errorf("%q is read, and written as %q: %v", plain, again.Bytes(), err)
		}
	})
}

// FuzzEntry: an entry comes back from its header as it was, or is refused.
func FuzzEntry(f *testing.F) {
	f.Add("path", "", byte('0'), uint32(0o644), uint32(7), int64(5), int64(-1), int64(999), "user.a", "v")
	f.Add("a\nb", "\xff", byte('2'), uint32(0), uint32(1<<31), int64(0), int64(1), int64(0), "", "")
	f.Fuzz(func(t *testing.T, path, target string, kind byte, mode, uid uint32, size, sec, nsec int64,
		name, value string) {
		e := entry{path: path, target: target, kind: kind, mode: mode, uid: uid, size: size, stored: size,
			modified: time.Unix(sec%(1<<40), nsec%1e9)}
		if name != "" {
			e.attrs = map[string]string{name: value}
		}
		if e.check() != nil {
			return
		}
		header, err := e.header()
		if err != nil {
			return
		}
		got, err := newReader(bytes.NewReader(header)).next()
		if err != nil || got.path != e.path || got.target != e.target || got.mode != e.mode ||
			got.uid != e.uid || got.size != e.size || !got.modified.Equal(e.modified) ||
			!maps.Equal(got.attrs, e.attrs) {
			t.Errorf("%+v comes back as %+v, %v", e, got, err)
		}
	})
}

// TestOneForm: a header with any byte changed is refused, or is another entry in its one form.
func TestOneForm(t *testing.T) {
	plain := raw(t, entry{path: "d", kind: typeDirectory, attrs: map[string]string{"user.a": "v"}})
	header := plain[:len(plain)-2*blockSize]
	for i := range header {
		changed := bytes.Clone(header)
		changed[i] ^= 1
		var again bytes.Buffer
		changed = append(changed, make([]byte, 2*blockSize)...)
		to := newWriter(&again)
		if _, err := readTar(bytes.NewReader(changed), wide, to); err != nil {
			continue
		}
		if err := to.end(); err != nil || !bytes.Equal(again.Bytes(), changed) {
			t.Errorf("byte %d changed: it is read, and written otherwise: %v", i, err)
		}
	}
}
