package files

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// ReadFile is read_file: a page of the file, or all of it as a stream.
func (t *Tools) ReadFile(a filewire.ReadFile, begin filewire.Begin) (filewire.Answer, error) {
	return t.do(filewire.ReadFileTool, a, func() (out filewire.Answer, err error) {
		f, out, err := t.openToRead(a.Path, func(p *place) (*os.File, unix.Stat_t, error) {
			return p.open(unix.O_RDONLY)
		})
		if err != nil {
			return out, err
		}
		defer f.Close()
		out.Offset = a.Offset
		err = t.read1(f, a, &out, begin)
		return out, err
	})
}

// openToRead finds and opens name. out says what was opened.
func (t *Tools) openToRead(
	name string, open func(*place) (*os.File, unix.Stat_t, error),
) (f *os.File, out filewire.Answer, err error) {
	err = again(func() error {
		p, err := t.find(filewire.Read, name)
		if err != nil {
			return err
		}
		defer p.close()
		var st unix.Stat_t
		if f, st, err = open(p); err == nil {
			out = stated(st)
			out.Path = p.real
		}
		return err
	})
	return f, out, err
}

// stated is an answer with the results of fstat(2).
func stated(st unix.Stat_t) filewire.Answer {
	at := time.Unix(st.Mtim.Unix()).UTC()
	return filewire.Answer{Size: st.Size, Mode: st.Mode & 0o7777, Modified: &at}
}

// read1 copies the requested part and records its size in out.
func (t *Tools) read1(f *os.File, a filewire.ReadFile, out *filewire.Answer, begin filewire.Begin) error {
	limit := int64(filewire.MaxPage)
	if a.Stream {
		limit = t.opt.MaxBytes
	}
	if a.Line > 0 || a.Lines > 0 {
		start, err := lineStart(f, max(a.Line, 1))
		if err != nil {
			return err
		}
		out.Offset = start
	}
	if a.Length > 0 {
		limit = min(limit, a.Length)
	} else if !a.Stream {
		var err error
		if limit, err = wholeRunes(f, out.Offset, limit); err != nil {
			return err
		}
	}
	s := &sink{w: begin(*out), sum: newSum(a.Hash), lines: a.Lines, stop: a.Lines > 0}
	_, err := filewire.Copy(s, io.NewSectionReader(f, out.Offset, limit))
	if err != nil && err != errEnough {
		return err
	}
	return s.report(f, a, out)
}

// sink passes on and counts bytes and lines, and ends with errEnough behind the last requested line.
type sink struct {
	w     io.Writer
	sum   sum
	lines int64 // still wanted, when stop
	stop  bool
	bytes int64
	feeds int64
}

var errEnough = errors.New("the last requested line has been read")

func (s *sink) Write(p []byte) (int, error) {
	enough := false
	if s.stop {
		at, left := afterLines(p, s.lines)
		s.feeds, s.lines, enough = s.feeds+s.lines-left, left, left == 0
		p = p[:at]
	} else {
		s.feeds += int64(bytes.Count(p, []byte{'\n'}))
	}
	_, _ = s.sum.Write(p) // hash.Hash: never an error
	n, err := s.w.Write(p)
	s.bytes += int64(n)
	if err == nil && enough {
		err = errEnough
	}
	return n, err
}

// afterLines is where the first n lines of p end, and how many of them end behind it.
func afterLines(p []byte, n int64) (at int, left int64) {
	for ; n > 0; n-- {
		i := bytes.IndexByte(p[at:], '\n')
		if i < 0 {
			return len(p), n
		}
		at += i + 1
	}
	return at, 0
}

// report records in out how much was read and where the next page begins.
func (s *sink) report(f *os.File, a filewire.ReadFile, out *filewire.Answer) error {
	out.Bytes = s.bytes
	out.SHA256 = s.sum.String()
	end := out.Offset + s.bytes
	var one [1]byte
	n, err := f.ReadAt(one[:], end)
	if err != nil && err != io.EOF {
		return err
	}
	out.Truncated = n > 0
	if out.Truncated {
		out.NextOffset = end
	}
	if a.Line > 0 || a.Lines > 0 {
		return s.reportLines(f, a, out, end)
	}
	return nil
}

func (s *sink) reportLines(f *os.File, a filewire.ReadFile, out *filewire.Answer, end int64) error {
	out.Lines = s.feeds
	whole := s.bytes == 0
	if !whole {
		var last [1]byte
		if _, err := f.ReadAt(last[:], end-1); err != nil && err != io.EOF {
			return err
		}
		whole = last[0] == '\n'
	}
	switch {
	case !whole && !out.Truncated:
		out.Lines++ // the last line, which has no end
	case whole && out.Truncated:
		out.NextLine = max(a.Line, 1) + s.feeds
	}
	return nil
}

// lineStart is where line n begins, counted from 1; the end of the file when it
// has fewer lines.
func lineStart(r io.ReaderAt, n int64) (off int64, err error) {
	in, buf := io.NewSectionReader(r, 0, math.MaxInt64), make([]byte, filewire.BufferSize)
	for n--; n > 0 && err == nil; {
		var k, at int
		k, err = in.Read(buf)
		at, n = afterLines(buf[:k], n)
		off += int64(at)
	}
	if err == io.EOF {
		err = nil
	}
	return off, err
}

// wholeRunes shortens a page so that it does not end within a UTF-8 character: a page becomes a
// JSON string. Bytes that are not UTF-8 are not cut.
func wholeRunes(r io.ReaderAt, off, limit int64) (int64, error) {
	var tail [utf8.UTFMax]byte
	n, err := r.ReadAt(tail[:], off+limit-utf8.UTFMax)
	if errors.Is(err, io.EOF) || n < len(tail) && err == nil {
		return limit, nil // the file ends in this page
	}
	if err != nil {
		return 0, err
	}
	return limit - int64(len(tail)-chat.WholeRunes(tail[:])), nil
}
