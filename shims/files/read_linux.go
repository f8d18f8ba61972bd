package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// ReadFile is read_file: a page of the file, or all of it as a stream.
func (t *Tools) ReadFile(a filewire.ReadFile, begin filewire.Begin) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	f, st, name, err := t.openToRead(a.Path, func(p *place) (*os.File, unix.Stat_t, error) {
		return p.open(unix.O_RDONLY)
	})
	if err != nil {
		return filewire.Answer{}, explain(filewire.ReadFileTool, filewire.Read, t, a.Path,
			"failed to read file", err)
	}
	defer f.Close()
	out := stated(st)
	out.Path, out.Offset = name, a.Offset
	if err := t.read1(f, a, &out, begin); err != nil {
		return out, explain(filewire.ReadFileTool, filewire.Read, t, a.Path, "failed to read file", err)
	}
	return out, nil
}

// openToRead finds and opens name; real is its physical name.
func (t *Tools) openToRead(
	name string, open func(*place) (*os.File, unix.Stat_t, error),
) (f *os.File, st unix.Stat_t, real string, err error) {
	err = again(func() error {
		p, err := t.find(filewire.Read, name)
		if err != nil {
			return err
		}
		defer p.close()
		real = p.real
		f, st, err = open(p)
		return err
	})
	return f, st, real, err
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
	sink := &sink{w: begin(*out), lines: a.Lines, stop: a.Lines > 0}
	if a.Hash {
		sink.hash = sha256.New()
	}
	if err := sink.copy(f, out.Size, out.Offset, limit); err != nil {
		return err
	}
	return sink.report(f, a, out)
}

// sink passes on and counts bytes and lines, and stops after the last requested line.
type sink struct {
	w     io.Writer
	hash  hash.Hash
	lines int64 // still wanted, when stop
	stop  bool
	bytes int64
	feeds int64
	ended bool // the last requested line has been read
}

// copy reads at most limit bytes; size, if the file has one, only sizes the buffer.
func (s *sink) copy(r io.ReaderAt, size, off, limit int64) error {
	want := min(filewire.BufferSize, max(limit, 1))
	if size > 0 {
		want = min(want, max(size-off, 0)+1)
	}
	buf := make([]byte, want)
	for s.bytes < limit && !s.ended {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), limit-s.bytes)], off+s.bytes)
		if e := s.pass(buf[:n]); e != nil {
			return e
		}
		if err == io.EOF || n == 0 && err == nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sink) pass(p []byte) error {
	if s.stop {
		p = s.upToLines(p)
	} else {
		s.feeds += int64(bytes.Count(p, []byte{'\n'}))
	}
	if s.hash != nil {
		s.hash.Write(p)
	}
	n, err := s.w.Write(p)
	s.bytes += int64(n)
	return err
}

// upToLines cuts p after the last requested line.
func (s *sink) upToLines(p []byte) []byte {
	for at := 0; at < len(p); {
		i := bytes.IndexByte(p[at:], '\n')
		if i < 0 {
			break
		}
		at += i + 1
		s.feeds++
		if s.feeds == s.lines {
			s.ended = true
			return p[:at]
		}
	}
	return p
}

// report records in out how much was read and where the next page begins.
func (s *sink) report(f *os.File, a filewire.ReadFile, out *filewire.Answer) error {
	out.Bytes = s.bytes
	if s.hash != nil {
		out.SHA256 = hex.EncodeToString(s.hash.Sum(nil))
	}
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
func lineStart(r io.ReaderAt, n int64) (int64, error) {
	buf := make([]byte, filewire.BufferSize)
	var off int64
	for n > 1 {
		k, err := r.ReadAt(buf, off)
		for at := 0; at < k && n > 1; {
			i := bytes.IndexByte(buf[at:k], '\n')
			if i < 0 {
				break
			}
			at += i + 1
			if n--; n == 1 {
				return off + int64(at), nil
			}
		}
		off += int64(k)
		if err == io.EOF || k == 0 && err == nil {
			return off, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return off, nil
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
