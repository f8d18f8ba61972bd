package stream

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func ringFile(t *testing.T) *os.File {
	t.Helper()
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "ring")))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

// pattern is byte i of the stream that the tests write.
func pattern(i int64) byte { return byte(i*7 ^ i>>8 ^ i>>16) }

func patternFrom(from int64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = pattern(from + int64(i))
	}
	return p
}

// maxes are the bounds of the streams in these tests.
var maxes = []int64{chat.MinOutputMax, chat.MinOutputMax + 1, 3 * PieceSize, chat.DefaultOutputMax, chat.MaxOutputMax}

// TestFile: head and tail of a stream of any length read back as written, from any position, for
// each bound.
func TestFile(t *testing.T) {
	for _, max := range maxes {
		half := max / 2
		for _, size := range []int64{0, 1, half - 1, half, half + 1, max, max + 1, max + PieceSize, max + PieceSize + 1, 3*max + 12345} {
			if testing.Short() && max == chat.MaxOutputMax && size > max+1 {
				continue
			}
			f := ringFile(t)
			w := NewFile(f, max)
			for at := int64(0); at < size; {
				n := min(size-at, rand.Int64N(100_000)+1)
				must.Do(t, expect.Err(w.Write(patternFrom(at, int(n)))))
				at += n
			}
			seen, want := readRing(t, f, max, size), min(size, max)
			expect.True(t, seen == want, "%d bytes, max %d: %d are kept, want %d", size, max, seen, want)
			if fi, err := f.Stat(); err != nil || fi.Size() > max+PieceSize+countsSize {
				t.Errorf("%d bytes, max %d: the file has %d, %v", size, max, fi.Size(), err)
			}
		}
	}
}

// readRing reads all that is kept of a stream of size bytes and returns how much that is. The head
// is never left out; nothing is, of a stream that is no longer than max.
func readRing(t *testing.T, f *os.File, max, size int64) (seen int64) {
	t.Helper()
	r := NewFile(f, max)
	total, missed, err := r.Counts()
	must.True(t, err == nil && total == size && missed == 0,
		"%d bytes: counts %d, %d, %v", size, total, missed, err)
	buf := make([]byte, 10_000)
	for pos := int64(0); ; {
		n, at, err := r.ReadAt(buf, pos)
		if err != nil || at < pos || at > pos && (pos != r.head || size <= r.max) {
			t.Fatalf("%d bytes, max %d, from %d: at %d, %v", size, max, pos, at, err)
		}
		if n == 0 {
			return seen
		}
		must.True(t, bytes.Equal(buf[:n], patternFrom(at, n)),
			"%d bytes, max %d: from %d on it is not what was written", size, max, at)
		seen, pos = seen+int64(n), at+int64(n)
	}
}

// FuzzFile: for any bound and any pieces, head and tail read back as written.
func FuzzFile(f *testing.F) {
	f.Add(int64(chat.MinOutputMax), int64(5000), uint32(1))
	f.Add(int64(chat.DefaultOutputMax), int64(3<<20), uint32(100_000))
	f.Add(int64(70_001), int64(70_001+PieceSize), uint32(PieceSize))
	f.Fuzz(func(t *testing.T, max, size int64, piece uint32) {
		if chat.CheckOutputMax(max) != nil || max == 0 || size < 0 || size > 16<<20 || piece == 0 || size/int64(piece) > 10_000 {
			return
		}
		file := ringFile(t)
		w := NewFile(file, max)
		for at := int64(0); at < size; at += int64(piece) {
			must.Do(t, expect.Err(w.Write(patternFrom(at, int(min(int64(piece), size-at))))))
		}
		seen, want := readRing(t, file, max, size), min(size, max)
		expect.True(t, seen == want, "%d bytes, max %d: %d are kept, want %d", size, max, seen, want)
	})
}

// TestFileWhileWritten: a reader never returns bytes that are being overwritten.
func TestFileWhileWritten(t *testing.T) {
	for _, max := range maxes {
		f := ringFile(t)
		done := make(chan struct{})
		size := 8*max + 4<<20
		if testing.Short() {
			size = 2*max + 4<<20
		}
		go func() {
			defer close(done)
			w := NewFile(f, max)
			const much = 3*PieceSize + 1
			for at := int64(0); at < size; at += much {
				_, _ = w.Write(patternFrom(at, int(min(much, size-at))))
			}
		}()
		r, buf, pos := NewFile(f, max), make([]byte, 50_000), int64(0)
		for pos < size {
			n, at, err := r.ReadAt(buf, pos)
			must.True(t, err == nil && bytes.Equal(buf[:n], patternFrom(at, n)),
				"max %d, from %d: wrong bytes at %d, %v", max, pos, at, err)
			pos = at + int64(n)
		}
		<-done
	}
}

// TestFileWithoutRoom: bytes without room are counted, and the stream before them stays.
func TestFileWithoutRoom(t *testing.T) {
	for _, max := range []int64{600_000, chat.DefaultOutputMax} {
		w := NewFile(ringFile(t), max)
		w.roomy = func() bool { return w.total < 200_000 }
		for at := int64(0); at < 1_000_000; at += 50_000 {
			must.Do(t, expect.Err(w.Write(patternFrom(at, 50_000))))
		}
		total, missed, err := w.Counts()
		expect.True(t, err == nil && total+missed == 1_000_000 && total >= 200_000 && total <= 400_000,
			"max %d: %d kept, %d missed, %v", max, total, missed, err)
	}
}

// TestTail: the end of what was printed, in whole characters, however much was.
func TestTail(t *testing.T) {
	const max = chat.MaxTail
	for _, c := range []struct{ printed, want string }{
		{"", ""},
		{"ab", "ab"},
		{strings.Repeat("x", 100000) + "end", strings.Repeat("x", max-3) + "end"},
		{strings.Repeat("x", 3<<20) + "end", strings.Repeat("x", max-3) + "end"},
		{strings.Repeat("é", max) + "x", strings.Repeat("é", (max-1)/2) + "x"},
		{"\xff\x80a", "\xff\x80a"},
	} {
		f := NewFile(ringFile(t), chat.DefaultOutputMax)
		must.Do(t, expect.Err(f.Write([]byte(c.printed))))
		if got, err := f.Tail(max); string(got) != c.want || err != nil {
			t.Errorf("%.20q: %.40q of %d, %v", c.printed, got, len(got), err)
		}
	}
}
