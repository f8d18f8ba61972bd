package files

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestExactlyOne: no match and several are errors that change nothing; overlapping matches count as
// several, also across a buffer's boundary.
func TestExactlyOne(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		text, old string
		n         int
	}{
		{"abc", "b", 1}, {"abc", "x", 0}, {"", "x", 0}, {"aaa", "aa", 2}, {"abab", "ab", 2}, {"ababa", "aba", 2}, {"abc", "abc", 1}, {"ab", "abc", 0},
		{strings.Repeat("x", filewire.BufferSize-1) + "needle" + strings.Repeat("x", filewire.BufferSize), "needle", 1},
		{strings.Repeat("x", filewire.BufferSize-3) + "needle" + strings.Repeat("x", filewire.BufferSize-6) + "needle", "needle", 2},
		{"a\r\nb\n", "\n", 2}, {"a\r\nb", "\r\n", 1}, {" a", "  a", 0},
	} {
		put1(t, w.home+"/f", c.text)
		_, err := w.edit("f", c.old, "NEW")
		got := cat(t, w.home+"/f")
		switch {
		case c.n == 1 && (err != nil || got != strings.Replace(c.text, c.old, "NEW", 1)):
			t.Errorf("edit of %.20q: %v, %.20q", c.text, err, got)
		case c.n == 0:
			wantError(t, err, chat.ErrInvalid, "old_text not found in file. Make sure it matches exactly")
		case c.n > 1:
			wantError(t, err, chat.ErrInvalid, fmt.Sprintf("old_text appears %d times. Please provide more context to make it unique", c.n))
		}
		expect.True(t, c.n == 1 || got == c.text, "refused, and yet changed: %.20q", got)
	}
	w.has(t, "f")
}

// TestSearch compares search with a naive one, on repetitive texts.
func TestSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	rounds := 20_000
	if testing.Short() {
		rounds = 4_000
	}
	for range rounds {
		text, old := randomText(rng, 40, "ab\n"), randomText(rng, 5, "ab\n")
		if old != "" {
			checkSearch(t, text, old)
		}
	}
}

func checkSearch(t *testing.T, text, old string) {
	t.Helper()
	first, count := int64(-1), int64(0)
	for i := range len(text) {
		if strings.HasPrefix(text[i:], old) {
			if count++; count == 1 {
				first = int64(i)
			}
		}
	}
	f, n, err := search(strings.NewReader(text), []byte(old))
	must.True(t, f == first && n == count && err == nil,
		"%q in %q: first %d, %d times, want %d, %d", old, text, f, n, first, count)
	if f, n, _ = search(iotest.OneByteReader(strings.NewReader(text)), []byte(old)); f != first || n != count {
		t.Fatalf("%q in %q, byte by byte: first %d, %d times, want %d, %d", old, text, f, n, first, count)
	}
}

func randomText(rng *rand.Rand, n int, letters string) string {
	b := make([]byte, rng.IntN(n+1))
	for i := range b {
		b[i] = letters[rng.IntN(len(letters))]
	}
	return string(b)
}

// TestSearchIsLinear: a text that matches almost everywhere does not take the
// product of the lengths: that would be 2^44 comparisons here.
func TestSearchIsLinear(t *testing.T) {
	old := strings.Repeat("a", 1<<20-1) + "b"
	if _, n, err := search(io.LimitReader(letters{}, 1<<24), []byte(old)); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if _, n, err := search(io.LimitReader(letters{}, 1<<24), []byte(old[:1<<20-1])); n != 1<<24-1<<20+2 || err != nil {
		t.Fatal(n, err)
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// TestDiff: the diff of random edits, given to patch(1), makes the new file of
// the old one, and the old one of the new.
func TestDiff(t *testing.T) {
	_, err := exec.LookPath("patch")
	need(t, err == nil, "patch: it says what a diff means")
	rng := rand.New(rand.NewPCG(5, 6))
	w := newWorld(t)
	tried, rounds := 0, 150
	if testing.Short() {
		rounds = 40
	}
	for tried < rounds {
		var b strings.Builder
		for range rng.IntN(20) {
			b.WriteString(randomText(rng, 3, "abc") + "\n")
		}
		text := b.String() + randomText(rng, 2, "ab")
		if text == "" {
			continue
		}
		from := rng.IntN(len(text))
		old := text[from : from+1+rng.IntN(min(9, len(text)-from))]
		if strings.Count(text, old) != 1 {
			continue
		}
		new := randomText(rng, 8, "xyz\n")
		put1(t, w.home+"/f", text)
		a, err := w.edit("f", old, new)
		if errors.Is(err, chat.ErrInvalid) {
			continue // it overlaps itself
		}
		must.Do(t, err)
		tried++
		want := strings.Replace(text, old, new, 1)
		got := patch(t, text, a.Diff)
		must.True(t, got == want, "%q → %q in %q: the diff makes %q\n%s", old, new, text, got, a.Diff)
		if got := patch(t, want, a.Diff, "-R"); got != text {
			t.Fatalf("%q → %q in %q: the diff backwards makes %q\n%s", old, new, text, got, a.Diff)
		}
	}
}

func patch(t *testing.T, text, diff string, flags ...string) string {
	t.Helper()
	if diff == "" {
		return text
	}
	dir := t.TempDir()
	put1(t, dir+"/f", text)
	cmd := exec.Command("patch", append([]string{"-p1", "-s", "--fuzz=0", "-d", dir}, flags...)...)
	cmd.Stdin = strings.NewReader(diff)
	out, err := cmd.CombinedOutput()
	must.True(t, err == nil && len(out) == 0, "patch: %v, %s\n%s\nof %q", err, out, diff, text)
	if _, err := os.Stat(dir + "/f"); err != nil {
		return "" // patch removes a file that becomes empty
	}
	return cat(t, dir+"/f")
}

func TestDiffForm(t *testing.T) {
	w := newWorld(t)
	put1(t, w.home+"/sub dir", "1\n2\n3\n4\n5\n6\n7\n8\n9")
	a, err := w.edit("sub dir", "5", "five")
	want := "--- a/sub dir\n+++ b/sub dir\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
	expect.True(t, err == nil && a.Diff == want, "%v\n%s", err, a.Diff)
	a, err = w.edit(w.home+"/sub dir", "9", "9\n")
	want = "--- a/sub dir\n+++ b/sub dir\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-9\n\\ No newline at end of file\n+9\n"
	expect.True(t, err == nil && a.Diff == want, "%v\n%s", err, a.Diff)
	put1(t, w.home+"/n\nl", "x")
	if a, err = w.edit("n\nl", "x", "y"); err != nil || !strings.HasPrefix(a.Diff, `--- "a/n\nl"`+"\n"+`+++ "b/n\nl"`+"\n") {
		t.Errorf("%v\n%s", err, a.Diff)
	}
	if a, err = w.edit("n\nl", "y", "y"); err != nil || a.Diff != "" || a.DiffOmitted != "" {
		t.Errorf("an edit that changes nothing: %v, %+v", err, a)
	}
}

// TestDiffBounds: a long diff is left out with a reason; a line far into a large file has the right
// number.
func TestDiffBounds(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", maxAround+1)
	for name, text := range map[string]string{"before": long + "mark", "after": "mark" + long, "both": long + "\n" + long + "mark" + long + "\n"} {
		put1(t, w.home+"/f", text)
		a, err := w.edit("f", "mark", "other")
		if err != nil || a.Diff != "" || a.DiffOmitted == "" || cat(t, w.home+"/f") != strings.Replace(text, "mark", "other", 1) {
			t.Errorf("a long line %s: %+v, %v", name, a, err)
		}
	}
	put1(t, w.home+"/f", long+"\n"+strings.Repeat("line\n", 100_000)+"mark\n"+long)
	a, err := w.edit("f", "mark", "other")
	want := "@@ -99999,4 +99999,4 @@\n line\n line\n line\n-mark\n+other\n"
	expect.True(t, err == nil && strings.HasSuffix(a.Diff, want), "%v\n%.300s", err, a.Diff)
	put1(t, w.home+"/f", "mark\n")
	a, err = w.edit("f", "mark", strings.Repeat("long\n", 100_000))
	expect.True(t, err == nil && a.Diff == "" && a.DiffOmitted != "", "a long diff: %d bytes, %v", len(a.Diff), err)
}

// TestChangedMeanwhile: a writer without the lock is noticed while the edit copies.
func TestChangedMeanwhile(t *testing.T) {
	w := newWorld(t)
	put1(t, w.home+"/f", "text")
	failpoint = func(at string) {
		if at == "temp.made" {
			f, err := os.OpenFile(w.home+"/f", os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				f.WriteString("more")
				f.Close()
			}
		}
	}
	defer func() { failpoint = func(string) {} }()
	if _, err := w.edit("f", "text", "x"); !errors.Is(err, chat.ErrBusy) || cat(t, w.home+"/f") != "textmore" {
		t.Errorf("%v, %q", err, cat(t, w.home+"/f"))
	}
}
