package state

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
)

// maxLine bounds a line of the log in bytes: 32 details of 1088 bytes that are
// escaped to six each are about 210 kB.
const maxLine = 256 << 10

// noHash is what the first line has before it.
var noHash = strings.Repeat("0", 2*sha256.Size)

func hashLine(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// rawLine is one line as it lies in the file.
type rawLine struct {
	text  []byte // at most maxLine bytes of it, without the newline
	hash  string // of all of it, without the newline
	size  int64  // of all of it, with the newline
	whole bool   // it has a newline
}

// readLine reads one line, however long, in bounded memory. At the end of the
// input it returns io.EOF and no line.
func readLine(r *bufio.Reader) (rawLine, error) {
	var l rawLine
	sum := sha256.New()
	for !l.whole {
		part, err := r.ReadSlice('\n')
		l.size += int64(len(part))
		if err == nil {
			l.whole = true
			part = part[:len(part)-1]
		}
		sum.Write(part)
		l.text = append(l.text, part[:min(len(part), maxLine-len(l.text))]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
	if l.size == 0 {
		return l, io.EOF
	}
	l.hash = hex.EncodeToString(sum.Sum(nil))
	return l, nil
}

// chain walks the lines of a log and knows what the next one must be.
type chain struct {
	seq  uint64
	hash string
}

// next takes one line. The error says what is wrong with it; the chain then goes
// on behind it as if it were right, for whoever wants to read on.
func (c *chain) next(raw rawLine) (line, error) {
	l, err := parseLine(raw)
	switch {
	case err != nil:
	case l.Seq != c.seq+1:
		err = fmt.Errorf("its seq is %d, want %d", l.Seq, c.seq+1)
	case l.Prev != c.hash:
		err = fmt.Errorf("its prev is not the hash of the line before")
	}
	c.seq++
	c.hash = raw.hash
	return l, err
}

func parseLine(raw rawLine) (l line, err error) {
	switch {
	case !raw.whole:
		return line{}, errors.New("it has no end")
	case raw.size > maxLine:
		return line{}, fmt.Errorf("it has %d bytes, want at most %d", raw.size, maxLine)
	}
	if err := json.Unmarshal(raw.text, &l); err != nil {
		return line{}, fmt.Errorf("it is no event: %w", err)
	}
	return l, nil
}

// verify reads a log from its beginning to its first broken line.
func verify(r io.Reader) (lines int, c chain, err error) {
	c = chain{hash: noHash}
	for in := bufio.NewReaderSize(r, 64<<10); ; lines++ {
		raw, err := readLine(in)
		if err == io.EOF {
			return lines, c, nil
		}
		if err != nil {
			return lines, c, err
		}
		if _, err := c.next(raw); err != nil {
			return lines, c, fmt.Errorf("line %d: %w: %w", lines+1, err, chat.ErrInvalid)
		}
	}
}

// VerifyAudit reads the log at path and returns how many lines hold from the
// beginning. [chat.ErrInvalid] with the number of the first line that was
// changed, added, dropped or moved, or that has no end. Lines cut off the end
// leave a chain that holds: [Store.VerifyAudit] sees those too.
func VerifyAudit(path string) (lines int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("cannot verify audit log: %w", err)
	}
	lines, _, err = verify(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return lines, fmt.Errorf("cannot verify audit log %s: %w", path, err)
	}
	return lines, nil
}

// VerifyAudit verifies the log of the open store up to this moment, and that it
// ends where this process ended it.
func (s *Store) VerifyAudit() (lines int, err error) {
	path := filepath.Join(s.opts.Dir, auditName)
	lines, err = s.log.verify(path)
	if err != nil {
		return lines, fmt.Errorf("cannot verify audit log %s: %w", path, err)
	}
	return lines, nil
}

func (a *auditLog) verify(path string) (lines int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	want, err := a.snapshot(f, path)
	if err != nil {
		return 0, err
	}
	lines, got, err := verify(io.LimitReader(f, want.Offset))
	if err != nil {
		return lines, err
	}
	if got.seq != want.Seq || got.hash != want.Hash {
		return lines, fmt.Errorf("it ends with line %d, want line %d as written: %w", got.seq, want.Seq, chat.ErrInvalid)
	}
	return lines, nil
}

// snapshot returns the head at a moment when f, the file at path, is the open
// log and exactly as long as was written.
func (a *auditLog) snapshot(f *os.File, path string) (head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := checkSame(a.file, path); err != nil {
		return head{}, err
	}
	fi, err := f.Stat()
	if err != nil {
		return head{}, err
	}
	if fi.Size() != a.head.Offset && !a.torn {
		return head{}, fmt.Errorf("it has %d bytes, %d were written: %w", fi.Size(), a.head.Offset, chat.ErrInvalid)
	}
	return a.head, nil
}
