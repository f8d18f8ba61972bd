package stream

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestCapture: head and tail are kept, the middle is counted, whatever the pieces in
// which it comes.
func TestCapture(t *testing.T) {
	for _, max := range []int{chat.MinOutputMax, chat.MinOutputMax + 1, chat.DefaultOutputMax, chat.MaxOutputMax} {
		for _, total := range []int{0, 1, max/2 - 1, max / 2, max/2 + 1, max, max + 1, 2*max + 7, 5 * max} {
			if testing.Short() && max == chat.MaxOutputMax && total > max+1 {
				continue
			}
			captureAll(t, max, total)
		}
	}
}

func captureAll(t *testing.T, max, total int) {
	t.Helper()
	headSize, tailSize := max/2, max-max/2
	all := make([]byte, total)
	for i := range all {
		all[i] = 'a' + byte(i%23)
	}
	c := NewCapture(int64(max))
	for p := all; len(p) > 0; {
		n := min(len(p), 1+rand.IntN(300_000))
		c.Add(p[:n])
		p = p[n:]
	}
	got := c.Text()
	if c.Total() != int64(total) || c.Truncated() != (total > max) || len(got) > max {
		t.Errorf("max %d, %d bytes: counts %d, truncated %t, text of %d", max, total, c.Total(), c.Truncated(), len(got))
	}
	if !c.Truncated() {
		expect.True(t, got == string(all), "max %d, %d bytes: not the same", max, total)
		return
	}
	head, rest, _ := strings.Cut(got, "\n[chatd left ")
	left, tail, _ := strings.Cut(rest, " bytes out]\n")
	if head != string(all[:headSize]) || !strings.HasSuffix(string(all), tail) || len(tail) < tailSize-50 || left != fmt.Sprint(total-len(head)-len(tail)) {
		t.Errorf("max %d, %d bytes: head %d, left %s, tail %d", max, total, len(head), left, len(tail))
	}
	expect.True(t, c.Text() == got && strings.HasSuffix(string(all), string(c.Bytes()[headSize:])),
		"max %d, %d bytes: asked again it is another text", max, total)
	if cap(c.head)+cap(c.tail) > max {
		t.Errorf("max %d, %d bytes: holds %d", max, total, cap(c.head)+cap(c.tail))
	}
}

// TestCaptureText: bytes that JSON cannot carry are replaced, and no character is cut in two.
func TestCaptureText(t *testing.T) {
	c := NewCapture(chat.MinOutputMax)
	c.Add([]byte("a\xffb"))
	if c.Text() != "a\uFFFDb" {
		t.Errorf("text %q", c.Text())
	}
	for _, tail := range []string{"", strings.Repeat("x", chat.MinOutputMax)} {
		c := NewCapture(chat.MinOutputMax)
		c.Add([]byte("caf\xe9 \xff\xfe \uFFFD" + tail))
		if n := c.Replaced(); n != 3 {
			t.Errorf("%d bytes are said to be replaced, want 3 of %q", n, c.Text()[:12])
		}
	}
	for shift := range 8 {
		for _, max := range []int64{chat.MinOutputMax, chat.MinOutputMax + 1, chat.DefaultOutputMax} {
			c := NewCapture(max)
			c.Add([]byte(strings.Repeat("x", shift) + strings.Repeat("€", int(max))))
			if s := c.Text(); !utf8.ValidString(s) || strings.Contains(s, "\uFFFD") {
				t.Errorf("max %d, shift %d: a character was cut", max, shift)
			}
		}
	}
}

// TestCaptureIsBounded reads a pipe to its end.
func TestCaptureIsBounded(t *testing.T) {
	r, w, err := os.Pipe()
	must.Do(t, err)
	go func() {
		defer w.Close()
		for range 3 {
			expect.NoError(t, expect.Err(w.WriteString(strings.Repeat("x", chat.DefaultOutputMax))))
		}
	}()
	c := NewCapture(chat.DefaultOutputMax)
	c.Take(r, nil)
	if len(c.Text()) > chat.DefaultOutputMax || c.Total() != 3*chat.DefaultOutputMax || !c.Truncated() {
		t.Errorf("kept %d of %d, truncated %v", len(c.Text()), c.Total(), c.Truncated())
	}
}

// TestCaptureOfARing: a capture of a file equals a capture of the stream itself.
func TestCaptureOfARing(t *testing.T) {
	for _, max := range []int64{chat.MinOutputMax, chat.MinOutputMax + 1, chat.DefaultOutputMax} {
		for _, total := range []int64{0, max, max + 1, max + 40<<10, 3*max + 1} {
			f := must.Get(os.Create(t.TempDir() + "/ring"))(t)
			defer f.Close()
			all := make([]byte, total)
			for i := range all {
				all[i] = 'a' + byte(i%23)
			}
			must.Do(t, expect.Err(NewFile(f, max).Write(all)))
			direct, read := NewCapture(max), NewCapture(max)
			direct.Add(all)
			if missed, err := read.ReadFile(NewFile(f, max)); err != nil || missed != 0 || read.Total() != total || read.Text() != direct.Text() {
				t.Errorf("max %d, %d bytes: missed %d, %v, total %d, text of %d, want %d", max, total, missed, err, read.Total(), len(read.Text()), len(direct.Text()))
			}
		}
	}
}
