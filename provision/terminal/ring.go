package terminal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
)

// ring keeps the end of a stream on the disk, in a directory with two files at most. It may be used
// by many goroutines.
//
// The cursor of a byte is the number of bytes ever appended before it. Each file is named by
// the cursor of its first byte, so that names and sizes are the whole state, and a crash between
// two writes leaves nothing to repair. When the newer file is full, the ring begins a third and
// removes the oldest: it keeps between half of the bound and all of it.
type ring struct {
	dir  string
	half int64 // bytes in one file

	mu      sync.Mutex
	files   []ringFile // at most two, the older first
	changed chan struct{}
	removed bool
}

type ringFile struct{ from, size int64 }

func (f ringFile) end() int64 { return f.from + f.size }

func (f ringFile) name() string { return fmt.Sprintf("%020d", f.from) }

// openRing opens the ring in dir, which need not exist: the first append makes it. size bounds the
// kept bytes. It removes every other file in dir.
func openRing(dir string, size int64) (*ring, error) {
	r := &ring{dir: dir, half: max(1, size/2), changed: make(chan struct{})}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot open the log %s: %w", dir, err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("cannot open the log %s: %w", dir, err)
		}
		from, err := strconv.ParseInt(e.Name(), 10, 63)
		f := ringFile{from, fi.Size()}
		if err != nil || f.name() != e.Name() || !fi.Mode().IsRegular() || f.size > r.half {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("cannot tidy the log %s: %w", dir, err)
			}
			continue
		}
		r.files = append(r.files, f)
	}
	slices.SortFunc(r.files, func(a, b ringFile) int { return cmp.Compare(a.from, b.from) })
	for i := len(r.files) - 1; i > 0; i-- {
		if r.files[i-1].end() != r.files[i].from { // the end of a file was lost
			return r, r.drop(i)
		}
	}
	return r, r.drop(len(r.files) - 2)
}

// drop removes the n oldest files.
func (r *ring) drop(n int) error {
	for ; n > 0; n-- {
		if err := os.Remove(filepath.Join(r.dir, r.files[0].name())); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot shorten the log: %w", err)
		}
		r.files = slices.Clone(r.files[1:])
	}
	return nil
}

// errRemoved is the error of a ring after [ring.remove].
var errRemoved = errors.New("it was removed")

// remove removes the directory with its content. A later append on the ring fails, and does not
// make it again.
func (r *ring) remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed, r.files = true, nil
	r.wake()
	if err := os.RemoveAll(r.dir); err != nil {
		return fmt.Errorf("cannot remove the log: %w", err)
	}
	return nil
}

// append adds p to the end. After an error some of p may be there.
func (r *ring) append(p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wake()
	if r.removed {
		return fmt.Errorf("cannot write the log: %w", errRemoved)
	}
	for len(p) > 0 {
		n, err := r.appendSome(p)
		if err != nil {
			return fmt.Errorf("cannot write the log: %w", err)
		}
		p = p[n:]
	}
	return nil
}

func (r *ring) appendSome(p []byte) (int, error) {
	if len(r.files) == 0 || r.files[len(r.files)-1].size >= r.half {
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return 0, err
		}
		r.files = append(r.files, ringFile{from: r.end()})
		if err := r.drop(len(r.files) - 2); err != nil {
			return 0, err
		}
	}
	last := &r.files[len(r.files)-1]
	f, err := os.OpenFile(filepath.Join(r.dir, last.name()), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.WriteAt(p[:min(int64(len(p)), r.half-last.size)], last.size)
	last.size += int64(n)
	return n, errors.Join(err, f.Close())
}

func (r *ring) end() int64 {
	if len(r.files) == 0 {
		return 0
	}
	return r.files[len(r.files)-1].end()
}

// wake notifies all waiters.
func (r *ring) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// bounds are the cursors of the first kept byte and of the next byte to come. The next append
// closes changed.
func (r *ring) bounds() (start, end int64, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) > 0 {
		start = r.files[0].from
	}
	return start, r.end(), r.changed
}

// readAt fills p from the cursor on, or from the first kept byte if that is later; from is the
// cursor it used. n is 0 at the end of the stream.
func (r *ring) readAt(p []byte, cursor int64) (n int, from int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed {
		return 0, cursor, fmt.Errorf("cannot read the log: %w", errRemoved)
	}
	if len(r.files) > 0 {
		cursor = max(cursor, r.files[0].from)
	}
	for _, f := range r.files {
		at := cursor + int64(n)
		if at >= f.end() || n == len(p) {
			continue
		}
		m, err := r.readFile(f, p[n:min(int64(len(p)), int64(n)+f.end()-at)], at)
		if n += m; err != nil {
			return n, cursor, fmt.Errorf("cannot read the log: %w", err)
		}
	}
	return n, cursor, nil
}

// readFile reads all of p; the lock is held, so that the file is not removed meanwhile.
func (r *ring) readFile(f ringFile, p []byte, cursor int64) (int, error) {
	in, err := os.Open(filepath.Join(r.dir, f.name()))
	if err != nil {
		return 0, err
	}
	n, err := in.ReadAt(p, cursor-f.from)
	if errors.Is(err, io.EOF) && n < len(p) {
		err = io.ErrUnexpectedEOF // the file was truncated
	}
	return n, errors.Join(err, in.Close())
}
