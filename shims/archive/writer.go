package archive

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/chatd/chatd/chat"
)

// writer is the tree that writes a tar archive.
type writer struct {
	out io.Writer
	sum hash.Hash // of what was written
}

func newWriter(out io.Writer) *writer {
	sum := sha256.New()
	return &writer{io.MultiWriter(out, sum), sum}
}

// add writes the header of an entry, the map of a sparse file, and the content in whole blocks.
func (w *writer) add(e entry, c *content) error {
	var table string
	if e.stored = 0; c != nil {
		if e.sparse {
			table = sparseMap(c.pieces)
		}
		e.stored = int64(len(table)) + c.size
	}
	if err := e.check(); err != nil {
		return err
	}
	header, err := e.header()
	if err != nil {
		return err
	}
	if _, err = w.out.Write(append(header, table...)); err != nil || c == nil {
		return err
	}
	n, err := io.Copy(w.out, c)
	if err == nil && n != c.size {
		err = changed()
	}
	if err == nil {
		_, err = w.out.Write(padding(n))
	}
	return err
}

func changed() error { return fmt.Errorf("it changed while it was read: %w", chat.ErrConflict) }

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

// leave writes nothing: what follows names its directory.
func (w *writer) leave() error { return nil }

// end writes the end of the archive.
func (w *writer) end() error {
	_, err := w.out.Write(make([]byte, 2*blockSize))
	return err
}
