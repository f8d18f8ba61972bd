package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/chatd/chatd/shims/archive"
	"github.com/chatd/chatd/test/must"
)

// owner is any uid but root's.
const owner = 1000

func call(in []byte, uid int, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, bytes.NewReader(in), &o, &e, uid)
	return code, o.String(), e.String()
}

// TestPackAndUnpack: the three commands agree on what an archive has.
func TestPackAndUnpack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(from, "f"), []byte("content"), 0o600))
	code, stream, packed := call(nil, owner, "pack", from)
	var s archive.Summary
	if err := json.Unmarshal([]byte(packed), &s); code != 0 || err != nil || s.Entries != 1 {
		t.Fatalf("pack: %d, %s", code, packed)
	}
	if code, _, checked := call([]byte(stream), owner, "check"); code != 0 || checked != packed {
		t.Errorf("check: %d, %s, want %s", code, checked, packed)
	}
	if code, _, unpacked := call([]byte(stream), owner, "unpack", to); code != 0 || unpacked != packed {
		t.Errorf("unpack: %d, %s, want %s", code, unpacked, packed)
	}
	if b, err := os.ReadFile(filepath.Join(to, "f")); string(b) != "content" {
		t.Errorf("the file has %q, %v", b, err)
	}
	if code, _, errs := call([]byte(stream), owner, "unpack", to); code != 5 {
		t.Errorf("unpacking again: %d, %s", code, errs)
	}
	code, _, errs := call([]byte(stream), owner, "check", "--max-bytes", "6")
	if code != 2 || !strings.Contains(errs, "more than 6 bytes") {
		t.Errorf("over its bound: %d, %s", code, errs)
	}
}

// TestNotAsRoot: root neither packs nor reads an archive.
func TestNotAsRoot(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"pack", dir}, {"check"}, {"unpack", dir}, {"seal"}, {"open"}} {
		code, out, errs := call(nil, 0, args...)
		if code != 3 || out != "" || !strings.Contains(errs, "as root") {
			t.Errorf("%s as root: %d, %q, %s", args, code, out, errs)
		}
	}
}

// TestEmptyKeys: a file of recipients without one never means an archive in clear.
func TestEmptyKeys(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "blank": " \n", "comment": "# none\n"} {
		file := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		code, out, errs := call(nil, owner, "pack", "--recipients", file, t.TempDir())
		if code != 2 || out != "" {
			t.Errorf("%s: %d, %q, %s", name, code, out, errs)
		}
	}
}

func TestUsage(t *testing.T) {
	if code, out, _ := call(nil, 0, "--help"); code != 0 || out != usage {
		t.Errorf("--help: %d, %s", code, out)
	}
	for _, args := range [][]string{{}, {"pack"}, {"check", "x"}, {"pack", "--none", "x"}, {"other", "x"},
		{"unpack", "a", "b"}, {"pack", "/does/not/exist"}} {
		if code, _, errs := call(nil, owner, args...); code != 2 {
			t.Errorf("%s: %d, %s", args, code, errs)
		}
	}
}

// TestSealAndReport: seal and open agree, keys come by standard input, and a report has one last line.
func TestSealAndReport(t *testing.T) {
	mine := must.Get(age.GenerateX25519Identity())(t)
	in := mine.Recipient().String() + "\n\x00what was said"
	code, stream, errs := call([]byte(in), owner, "seal", "--recipients", "-", "--check-key", "--report")
	var last line
	if err := json.Unmarshal([]byte(errs), &last); code != 0 || err != nil || last.Done == nil {
		t.Fatalf("seal: %d, %s", code, errs)
	}
	for _, key := range []string{mine.String(), last.Done.CheckIdentity} {
		code, out, errs := call([]byte(key+"\x00"+stream), owner, "open", "--identities", "-", "--report")
		if code != 0 || out != "what was said" || !strings.Contains(errs, last.Done.SHA256) {
			t.Errorf("open: %d, %q, %s", code, out, errs)
		}
	}
	for name, in := range map[string]string{"no NUL": mine.String(), "no key": "\x00" + stream, "none": stream} {
		code, out, errs := call([]byte(in), owner, "open", "--identities", "-", "--report")
		last = line{}
		err := json.Unmarshal([]byte(errs), &last)
		if code != 2 || out != "" || err != nil || last.Error == nil || last.Error.Kind != "invalid" {
			t.Errorf("%s: %d, %q, %s", name, code, out, errs)
		}
	}
	dir := t.TempDir()
	code, packed, errs := call([]byte(mine.Recipient().String()), owner, "pack", "--recipients", "-", dir)
	if code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := call([]byte(mine.String()+"\x00"+packed), owner, "check", "--identities", "-"); code != 0 {
		t.Errorf("check: %d, %s", code, errs)
	}
}
