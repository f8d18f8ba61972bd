package state

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// maxLine bounds a line of the log in bytes. 32 details of 1088 bytes and a command line of 8 KiB,
// with six bytes for each, are about 260 kB.
const maxLine = 320 << 10

// noHash is the prev of the first line.
var noHash = strings.Repeat("0", 2*sha256.Size)

func hashLine(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// rawLine is one line as it is in the file.
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

// linesOf reads all lines. After an error there are no more.
func linesOf(r io.Reader) iter.Seq2[rawLine, error] {
	return func(yield func(rawLine, error) bool) {
		for in := bufio.NewReaderSize(r, 64<<10); ; {
			raw, err := readLine(in)
			if errors.Is(err, io.EOF) || !yield(raw, err) || err != nil {
				return
			}
		}
	}
}

// chain verifies the lines of a log, each against the one before.
type chain struct {
	seq  uint64
	hash string
}

// next takes one line. After an error the chain continues from this line as if it were valid, so
// that a caller may read on.
func (c *chain) next(raw rawLine) (line, error) {
	l, err := parseLine[line](raw)
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

// parseLine reads one whole line as an event.
func parseLine[T line | AuditLine](raw rawLine) (l T, err error) {
	switch {
	case !raw.whole:
		return l, errors.New("it has no end")
	case raw.size > maxLine:
		return l, fmt.Errorf("it has %d bytes, want at most %d", raw.size, maxLine)
	}
	if err := json.Unmarshal(raw.text, &l); err != nil {
		return *new(T), fmt.Errorf("it is no event: %w", err)
	}
	return l, nil
}
