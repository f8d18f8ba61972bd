package archive

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strings"
)

// writer writes a tar archive.
type writer struct {
	out io.Writer
	sum hash.Hash // of what was written
}

func newWriter(out io.Writer) *writer {
	sum := sha256.New()
	return &writer{out: io.MultiWriter(out, sum), sum: sum}
}

// begin writes the header of an entry, and the map of a sparse file.
func (w *writer) begin(e entry, sparse []extent) error {
	var table string
	if sparse != nil {
		table = sparseMap(sparse)
		e.sparse, e.stored = true, int64(len(table))
		for _, x := range sparse {
			e.stored += x.size
		}
	} else {
		e.stored = e.size
	}
	if err := e.check(); err != nil {
		return err
	}
	header, err := e.header()
	if err != nil {
		return err
	}
	_, err = w.out.Write(append(header, table...))
	return err
}

// sparseMap is the map of GNU tar's form 1.0, in whole blocks.
func sparseMap(all []extent) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d\n", len(all))
	for _, x := range all {
		fmt.Fprintf(&out, "%d\n%d\n", x.at, x.size)
	}
	out.Write(padding(int64(out.Len())))
	return out.String()
}

// finish fills the content of n bytes to whole blocks.
func (w *writer) finish(n int64) error {
	_, err := w.out.Write(padding(n))
	return err
}

// end writes the end of the archive.
func (w *writer) end() error {
	_, err := w.out.Write(make([]byte, 2*blockSize))
	return err
}
