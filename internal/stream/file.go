package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// PieceSize bounds one write; the data may be that much ahead of the counts.
const PieceSize = 32 << 10

// countsSize is the size of the counts before the data: two numbers of eight bytes.
const countsSize = 16

// File is a stream in a file of bounded size: its head, and a ring of its tail. One process
// writes, others read at the same time; a descriptor is all that either needs.
type File struct {
	f *os.File
	// max bounds head and tail together; ring is the room behind the head.
	max, head, ring int64

	total, missed int64
	// roomy says whether the file may grow; nil means that it may.
	roomy func() bool
	grown int64
}

// NewFile is the stream in f, of which it keeps the first and the last half of max bytes. The
// caller closes f. A reader must pass the max of the writer.
//
// The ring has room for a piece more than its half, so that a write never overwrites kept bytes.
func NewFile(f *os.File, max int64) *File {
	return &File{f: f, max: max, head: max / 2, ring: max - max/2 + PieceSize}
}

// GrowIf lets the file grow only while roomy returns true; mayGrow calls it once for each growStep.
func (r *File) GrowIf(roomy func() bool) { r.roomy = roomy }

// Write adds p to the stream. Bytes without room count as missed.
func (r *File) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		m := min(len(p), PieceSize)
		if err := r.add(p[:m]); err != nil {
			return 0, err
		}
		p = p[m:]
	}
	return n, nil
}

func (r *File) add(p []byte) error {
	for len(p) > 0 {
		at, room := r.place(r.total)
		m := min(int64(len(p)), room)
		if !r.mayGrow(at + m) {
			r.missed += int64(len(p))
			break
		}
		if _, err := r.f.WriteAt(p[:m], countsSize+at); err != nil {
			r.missed += int64(len(p)) // the file system is full
			break
		}
		r.total += m
		p = p[m:]
	}
	var counts [countsSize]byte
	binary.LittleEndian.PutUint64(counts[:8], uint64(r.total))
	binary.LittleEndian.PutUint64(counts[8:], uint64(r.missed))
	if _, err := r.f.WriteAt(counts[:], 0); err != nil {
		return fmt.Errorf("cannot count a stream: %w", err)
	}
	return nil
}

// growStep is how often the file system is asked whether there is room.
const growStep = 64 << 10

// mayGrow asks once for each step; a file that has its full size grows no more.
func (r *File) mayGrow(size int64) bool {
	if r.roomy == nil || size <= r.grown {
		return true
	}
	if !r.roomy() {
		return false
	}
	r.grown = size + growStep
	return true
}

// place returns the offset of position pos of the stream in the data, and how many bytes are
// contiguous there.
func (r *File) place(pos int64) (at, room int64) {
	if pos < r.head {
		return pos, r.head - pos
	}
	in := (pos - r.head) % r.ring
	return r.head + in, r.ring - in
}

// Counts is how many bytes of the stream were written, and how many found no room.
func (r *File) Counts() (total, missed int64, err error) {
	var counts [countsSize]byte
	n, err := r.f.ReadAt(counts[:], 0)
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, 0, nil // nothing was written yet
	}
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read how long a stream is: %w", err)
	}
	return int64(binary.LittleEndian.Uint64(counts[:8])), int64(binary.LittleEndian.Uint64(counts[8:])), nil
}

// ReadAt reads from position pos on, or from the next kept one; at is the position it used. One
// call reads from head or tail, not across a gap. No bytes and no error mean the current end.
func (r *File) ReadAt(p []byte, pos int64) (n int, at int64, err error) {
	for {
		total, _, err := r.Counts()
		if err != nil {
			return 0, pos, err
		}
		at = r.next(pos, total)
		if at >= total {
			return 0, at, nil
		}
		off, room := r.place(at)
		n, err = r.f.ReadAt(p[:min(int64(len(p)), room, total-at)], countsSize+off)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, at, fmt.Errorf("cannot read a stream: %w", err)
		}
		if total, _, err = r.Counts(); err != nil {
			return 0, at, err
		}
		if r.next(at, total) == at || n == 0 {
			return n, at, nil
		}
	}
}

// next returns pos, or the oldest position of the tail if pos is no longer kept. The writer may
// have overwritten a piece beyond the counts.
func (r *File) next(pos, total int64) int64 {
	oldest := total - r.ring + PieceSize
	if total > r.max && pos >= r.head && pos < oldest {
		return oldest
	}
	return pos
}

// Tail is the end of the stream, in whole characters, at most n bytes.
func (r *File) Tail(n int64) ([]byte, error) {
	total, _, err := r.Counts()
	if err != nil {
		return nil, err
	}
	from := max(0, total-n)
	buf := make([]byte, n)
	var text []byte
	for pos := from; pos < total; {
		n, at, err := r.ReadAt(buf[:total-pos], pos)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		text, pos = append(text, buf[:n]...), at+int64(n)
	}
	if from > 0 {
		text = WholeStart(text)
	}
	return text, nil
}
