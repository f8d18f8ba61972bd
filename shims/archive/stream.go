package archive

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/chatd/chatd/chat"
)

// Summary is what a tree has. Those of a Pack and a Check of its stream are equal except for Left.
type Summary struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"` // of content, without holes
	// SHA256 is that of the tar archive in the stream.
	SHA256 string `json:"sha256"`
	// Left counts what Pack left out; LeftNames are the first of them, quoted.
	Left      int64    `json:"left,omitempty"`
	LeftNames []string `json:"left_names,omitempty"`
	// Copied counts hard links that Pack wrote as files of their own, because there were too many.
	Copied int64 `json:"copied,omitempty"`
}

// maxLeftNames bounds [Summary.LeftNames].
const maxLeftNames = 20

// leave counts what is left out.
func (s *Summary) leave(path, why string) {
	s.Left++
	if len(s.LeftNames) < maxLeftNames {
		s.LeftNames = append(s.LeftNames, chat.Quote(path)+": "+why)
	}
}

// Limits bound what Check and Unpack read.
type Limits struct {
	Entries int64
	Bytes   int64 // of content, without holes
	// FileSize bounds the size of one file with its holes.
	FileSize int64
	// Meter counts what was read, while it is; nil does not.
	Meter *Meter
}

// Meter counts the entries and the bytes of content that were done, for others to read.
type Meter struct{ Entries, Bytes atomic.Int64 }

// entry counts one entry.
func (m *Meter) entry() {
	if m != nil {
		m.Entries.Add(1)
	}
}

// Write counts content.
func (m *Meter) Write(b []byte) (int, error) {
	if m != nil {
		m.Bytes.Add(int64(len(b)))
	}
	return len(b), nil
}

// count takes one entry.
func (s *Summary) count(e entry, most Limits) error {
	s.Entries++
	most.Meter.entry()
	switch {
	case s.Entries > most.Entries:
		return chat.Invalid("cannot unpack: more than %d entries", most.Entries)
	case e.size > most.FileSize:
		return chat.Invalid("cannot unpack: %s has %d bytes, want at most %d",
			chat.Quote(e.path), e.size, most.FileSize)
	}
	return nil
}

// windowSize bounds what a reader of the stream holds.
const windowSize = 4 << 20

// compress is the way into the stream: zstd, and age where recipients has any.
func compress(out io.Writer, recipients string) (io.WriteCloser, error) {
	var outer io.WriteCloser
	if strings.TrimSpace(recipients) != "" {
		to, err := age.ParseRecipients(strings.NewReader(recipients))
		if err != nil {
			return nil, chat.Invalid("cannot use the recipients: %w", err)
		}
		if outer, err = age.Encrypt(out, to...); err != nil {
			return nil, fmt.Errorf("cannot encrypt: %w", err)
		}
		out = outer
	}
	inner, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(windowSize), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, fmt.Errorf("cannot compress: %w", err)
	}
	return &layered{inner, outer}, nil
}

// layered closes the inner writer and then the outer one, which may be nil.
type layered struct{ inner, outer io.WriteCloser }

func (l *layered) Write(b []byte) (int, error) { return l.inner.Write(b) }

func (l *layered) Close() error {
	err := l.inner.Close()
	if err == nil && l.outer != nil {
		err = l.outer.Close()
	}
	return err
}

// expand is the way out of a stream. Empty identities are those of a stream that is not encrypted.
func expand(in io.Reader, identities string) (io.ReadCloser, error) {
	if strings.TrimSpace(identities) != "" {
		ids, err := age.ParseIdentities(strings.NewReader(identities))
		if err != nil {
			return nil, chat.Invalid("cannot use the identities: %w", err)
		}
		if in, err = age.Decrypt(in, ids...); err != nil {
			return nil, chat.Invalid("cannot decrypt the archive: %w", err)
		}
	}
	d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(windowSize), zstd.WithDecoderMaxMemory(2*windowSize))
	if err != nil {
		return nil, chat.Invalid("cannot read the archive: %w", err)
	}
	return d.IOReadCloser(), nil
}

// Check reads a stream as [Unpack] does, with the same refusals, and writes nothing.
func Check(in io.Reader, identities string, most Limits) (Summary, error) {
	return read(in, identities, most, nothing{})
}

// tree is what is made of the entries that a packer finds or a stream has: an archive, a directory,
// or nothing.
type tree interface {
	// add is called for each entry after its directory; c is nil for all but regular files.
	add(e entry, c *content) error
	// leave is called for the directory that was added last and not left.
	leave() error
}

// content is that of a regular file: its pieces, one after another.
type content struct {
	io.Reader
	pieces []extent
	size   int64    // of the pieces together
	file   *os.File // from which they are read; nil in a stream
}

// read reads a stream into to. Entries must follow their directories.
func read(in io.Reader, identities string, most Limits, to tree) (s Summary, err error) {
	plain, err := expand(in, identities)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	return readTar(plain, most, to)
}

// readTar reads the tar archive in a stream.
func readTar(plain io.Reader, most Limits, to tree) (s Summary, err error) {
	r, open := newReader(plain), ""
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.count(e, most)
		}
		if err == nil {
			open, err = descend(open, e, to)
		}
		if err == nil {
			err = s.readEntry(r, e, most, to)
		}
		if err != nil {
			return s, err
		}
		if e.kind == typeDirectory {
			open = e.path
		}
	}
	for ; open != ""; open = directoryOf(open) {
		if err := to.leave(); err != nil {
			return s, err
		}
	}
	s.SHA256 = hex.EncodeToString(r.sum.Sum(nil))
	return s, nil
}

// descend leaves the open directories that do not hold e. open is the path of the innermost.
func descend(open string, e entry, to tree) (string, error) {
	for parent := directoryOf(e.path); open != parent; open = directoryOf(open) {
		if open == "" {
			return "", errDamaged(chat.Quote(e.path) + " does not follow its directory")
		}
		if err := to.leave(); err != nil {
			return "", err
		}
	}
	return open, nil
}

func (s *Summary) readEntry(r *reader, e entry, most Limits, to tree) (err error) {
	if e.kind != typeFile {
		return to.add(e, nil)
	}
	c := &content{Reader: io.TeeReader(r, most.Meter), pieces: []extent{{0, e.size}}}
	if e.sparse {
		if c.pieces, err = r.extents(e.size); err != nil {
			return err
		}
	}
	for _, p := range c.pieces {
		if c.size += p.size; c.size < 0 {
			return errDamaged("the map of a sparse file")
		}
	}
	if c.size != r.left {
		return errDamaged(chat.Quote(e.path) + " has another size than its map")
	}
	if c.size > most.Bytes-s.Bytes {
		return chat.Invalid("cannot unpack: more than %d bytes", most.Bytes)
	}
	s.Bytes += c.size
	if err := to.add(e, c); err != nil {
		return err
	}
	return r.close()
}

// nothing is the tree of a Check.
type nothing struct{}

func (nothing) leave() error { return nil }

func (nothing) add(_ entry, c *content) (err error) {
	if c != nil {
		_, err = io.Copy(io.Discard, c)
	}
	return err
}
