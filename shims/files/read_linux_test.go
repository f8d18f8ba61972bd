package files

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestPages reads by bytes: a page at a time comes to the whole file, and says
// where the next begins.
func TestPages(t *testing.T) {
	w := newWorld(t)
	content := strings.Repeat("0123456789", 100)
	put1(t, w.home+"/f", content)
	for _, length := range []int64{1, 7, 999, 1000, 1001} {
		var got strings.Builder
		for off := int64(0); ; {
			part, a, err := w.read(filewire.ReadFile{Path: "f", Offset: off, Length: length})
			if err != nil || a.Bytes != int64(len(part)) || a.Offset != off || a.Size != 1000 || int64(len(part)) > length {
				t.Fatalf("at %d: %+v, %v", off, a, err)
			}
			got.WriteString(part)
			if !a.Truncated {
				break
			}
			off = a.NextOffset
		}
		expect.True(t, got.String() == content, "by %d: %d bytes", length, got.Len())
	}
	got, a, err := w.read(filewire.ReadFile{Path: "f", Offset: 5000})
	expect.True(t, err == nil && got == "" && !a.Truncated, "beyond the end: %q, %+v, %v", got, a, err)
	got, a, err = w.read(filewire.ReadFile{Path: "f", Offset: filewire.MaxOffset})
	expect.True(t, err == nil && got == "" && !a.Truncated, "far beyond the end: %q, %+v, %v", got, a, err)
}

// TestBounded: without a stream no more than a page comes, however large the
// file; a stream has the bound of a file. A page does not end within a character.
func TestBounded(t *testing.T) {
	w := newWorld(t, func(o *filewire.Options) { o.MaxBytes = 3*filewire.MaxPage + 1 })
	for _, before := range []string{"", "x", "xx", "xxx"} {
		content := before + strings.Repeat("😀", filewire.MaxPage)
		put1(t, w.home+"/f", content)
		got, a, err := w.read(filewire.ReadFile{Path: "f"})
		if err != nil || len(got) > filewire.MaxPage || len(got) < filewire.MaxPage-3 || !utf8.ValidString(got) || !a.Truncated || a.NextOffset != int64(len(got)) {
			t.Fatalf("a page of %d bytes, %+v, %v", len(got), a, err)
		}
		next, _, err := w.read(filewire.ReadFile{Path: "f", Offset: a.NextOffset})
		must.True(t, err == nil && strings.HasPrefix(content[len(got):], next), "the next page is another: %v", err)
		got, _, err = w.read(filewire.ReadFile{Path: "f", Length: filewire.MaxPage})
		must.True(t, err == nil && len(got) == filewire.MaxPage, "a length that is given: %d bytes, %v", len(got), err)
		got, a, err = w.read(filewire.ReadFile{Path: "f", Stream: true})
		must.True(t, err == nil && len(got) == 3*filewire.MaxPage+1 && a.Truncated, "a stream: %d bytes, %v", len(got), err)
	}
	put1(t, w.home+"/f", strings.Repeat("\x80", 2*filewire.MaxPage))
	if got, _, err := w.read(filewire.ReadFile{Path: "f"}); err != nil || len(got) != filewire.MaxPage {
		t.Errorf("what is no UTF-8: %d bytes, %v", len(got), err)
	}
}

// TestLines pages by lines, also where the last has no end and where one is
// longer than a page.
func TestLines(t *testing.T) {
	w := newWorld(t)
	for _, content := range []string{"", "a", "a\n", "a\nb", "a\nb\n", "\n\n\n", "a\n\nc\n" + strings.Repeat("x", 300_000) + "\ne"} {
		put1(t, w.home+"/f", content)
		lines := slices.Collect(strings.Lines(content))
		for first := int64(0); first < int64(len(lines))+2; first++ {
			for n := int64(0); n < 4; n++ {
				if first+n == 0 {
					continue
				}
				from := min(max(first, 1)-1, int64(len(lines)))
				to := int64(len(lines))
				if n > 0 {
					to = min(from+n, to)
				}
				want := strings.Join(lines[from:to], "")
				got, a, err := w.read(filewire.ReadFile{Path: "f", Line: first, Lines: n})
				next := int64(0)
				if to < int64(len(lines)) {
					next = to + 1
				}
				must.True(t, err == nil && got == want && a.Lines == to-from && a.NextLine == next && a.Truncated == (next > 0),
					"lines %d+%d of %.20q: %.20q, %+v, %v; want %.20q, next %d", first, n, content, got, a, err, want, next)
			}
		}
	}
	put1(t, w.home+"/f", "a\n"+strings.Repeat("x", filewire.MaxPage+10)+"\nend\n")
	got, a, err := w.read(filewire.ReadFile{Path: "f", Line: 2, Lines: 1})
	if err != nil || len(got) != filewire.MaxPage || a.NextLine != 0 || a.NextOffset != filewire.MaxPage+2 || !a.Truncated {
		t.Errorf("a line longer than a page: %d bytes, %+v, %v", len(got), a, err)
	}
}

// TestProc: a file that says it has no size is read to its end.
func TestProc(t *testing.T) {
	w := newWorld(t, func(o *filewire.Options) { o.AllowRead = []string{"^/proc/cpuinfo$"} })
	got, a, err := w.read(filewire.ReadFile{Path: "/proc/cpuinfo"})
	expect.True(t, err == nil && strings.Contains(got, "processor") && a.Size == 0,
		"%.40q, %+v, %v", got, a, err)
	expect.Is(t, expect.Err(w.read(filewire.ReadFile{Path: "/proc/meminfo"})), chat.ErrDenied,
		"its neighbour")
}

// TestList: order, pages that come to the whole, and names that would forge an
// entry or are no UTF-8.
func TestList(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/d")
	var want []string
	for i := range 1500 {
		name := "f" + strconv.Itoa(i)
		want = append(want, name)
		put1(t, w.home+"/d/"+name, "")
	}
	slices.Sort(want)
	for _, limit := range []int{0, 1, 7, 499, 1500, 10_000} {
		var got []string
		for after := ""; ; {
			lines, a, err := w.list(filewire.ListDir{Path: "d", After: after, Limit: limit})
			if err != nil || a.Entries != strings.Count(lines, "\n") || limit > 0 && a.Entries > limit {
				t.Fatalf("after %q: %+v, %v", after, a, err)
			}
			for line := range strings.Lines(lines) {
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(line, "FILE: "), "\n"))
			}
			if after = a.NextEntry; !a.Truncated || limit == 1 && len(got) > 20 {
				break
			}
		}
		if !slices.Equal(got, want[:len(got)]) || limit != 1 && len(got) != len(want) {
			t.Errorf("by %d: %d entries", limit, len(got))
		}
	}
}

func TestListNames(t *testing.T) {
	w := newWorld(t)
	odd := []string{"a\nDIR:  forged", "bad\xff", `"quoted"`, "ünïcode ok", "tab\t", "\x1b[2J", "\u202etxt", " "}
	for _, name := range odd {
		put1(t, w.home+"/"+name, "")
	}
	link(t, w.out, w.home+"/to-dir")
	all, a, err := w.list(filewire.ListDir{})
	if err != nil || a.Entries != len(odd)+1 || strings.Count(all, "\n") != len(odd)+1 || !utf8.ValidString(all) || strings.Contains(all, "DIR:  ") && !strings.Contains(all, `"a\nDIR:  forged"`) {
		t.Fatalf("%q, %+v, %v", all, a, err)
	}
	var paged string
	for after, i := "", 0; i < len(odd)+1; i++ {
		one, a, err := w.list(filewire.ListDir{Limit: 1, After: after})
		must.True(t, err == nil && a.Entries == 1, "after %q: %+v, %v", after, a, err)
		paged, after = paged+one, a.NextEntry
	}
	expect.True(t, paged == all, "by pages: %q\nat once:  %q", paged, all)
	expect.Is(t, expect.Err(w.list(filewire.ListDir{After: `"broken`})), chat.ErrInvalid,
		"quotes that are not ours")
}

// TestListErrors: a list of a directory behind a link, and of one that is none.
func TestListErrors(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/d/e")
	link(t, w.home+"/d", w.home+"/link")
	got, a, err := w.list(filewire.ListDir{Path: "link"})
	expect.True(t, err == nil && got == "DIR:  e\n" && a.Path == w.home+"/d", "%q, %+v, %v", got, a, err)
	put1(t, w.home+"/f", "")
	expect.Is(t, expect.Err(w.list(filewire.ListDir{Path: "f"})), chat.ErrInvalid, "a file")
	for _, p := range []string{"none", "d/none/e"} {
		_, _, err := w.list(filewire.ListDir{Path: p})
		wantError(t, err, chat.ErrNotFound, "failed to read directory: file not found")
	}
	expect.True(t, fmt.Sprint(os.Remove(w.home+"/d/e")) == "<nil>", "a list holds its directory")
}
