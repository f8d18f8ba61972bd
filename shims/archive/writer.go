package archive

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// writer writes a tar archive.
type writer struct {
	out   io.Writer
	sum   hash.Hash // of what was written
	meter *Meter
}

func newWriter(out io.Writer, meter *Meter) *writer {
	sum := sha256.New()
	return &writer{out: io.MultiWriter(out, sum), sum: sum, meter: meter}
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

// content writes the pieces of a file, filled to whole blocks.
func (w *writer) content(f *os.File, pieces []extent) (stored int64, err error) {
	to := io.MultiWriter(w.out, w.meter)
	for _, x := range pieces {
		n, err := io.Copy(to, io.NewSectionReader(f, x.at, x.size))
		if err == nil && n != x.size {
			err = changed()
		}
		if stored += n; err != nil {
			return stored, err
		}
	}
	return stored, w.finish(stored)
}

// finish fills the content of n bytes to whole blocks.
func (w *writer) finish(n int64) error {
	_, err := w.out.Write(padding(n))
	return err
}

// leave writes nothing: what follows names its directory.
func (w *writer) leave() error { return nil }

// end writes the end of the archive.
func (w *writer) end() error {
	_, err := w.out.Write(make([]byte, 2*blockSize))
	return err
}
