package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/chatd/chatd/internal/filewire"

	"golang.org/x/sys/unix"
)

// AppendFile is append_file: it adds the content at the end, whole or not at all, and never between
// the pieces of another append.
func (t *Tools) AppendFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error) {
	return t.do(filewire.AppendFileTool, a, func() (out filewire.Answer, err error) {
		in := newSum(a.Hash)
		body := io.TeeReader(contentOf(a, body), in)
		// The spool keeps what was read of body, in case the path has to be walked again.
		s := &spool{}
		err = again(func() (err error) {
			out, err = t.append1(a.Path, body, s)
			return err
		})
		out.SHA256 = in.String()
		return out, errors.Join(err, s.close())
	})
}

func (t *Tools) append1(name string, body io.Reader, s *spool) (out filewire.Answer, err error) {
	p, err := t.find(filewire.Write, name)
	if err != nil {
		return out, err
	}
	defer p.close()
	defer func() {
		if err != nil {
			p.unmake()
		}
	}()
	if _, _, err = p.writable(); err == nil {
		err = p.makeDirs()
	}
	if err == nil {
		err = s.fill(p, body)
	}
	if err != nil {
		return out, err
	}
	return p.appendAll(s)
}

// appendAll adds the spool's content to the file, and creates it if necessary.
func (p *place) appendAll(s *spool) (out filewire.Answer, err error) {
	dir, err := p.createEmpty()
	if err != nil {
		return out, err
	}
	created := dir != nil
	if created {
		defer dir.Close()
	}
	f, st, err := p.openLocked(unix.O_WRONLY | unix.O_APPEND)
	if errors.Is(err, unix.ENOENT) {
		return out, errMoved // it existed, or was created, a moment ago
	}
	if err != nil {
		return out, err
	}
	defer f.Close()
	defer func() {
		if err != nil && created {
			p.removeEmpty(f)
		}
	}()
	at := st.Size
	err = p.appendLocked(f, at, s)
	if err == nil && created {
		err = fsync(dir)
	}
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	if err != nil {
		return out, err
	}
	out = stated(st)
	out.Path, out.Offset, out.Bytes, out.Created = p.real, at, s.size, created
	return out, nil
}

// appendLocked writes under the lock and syncs after releasing it.
func (p *place) appendLocked(f *os.File, size int64, s *spool) error {
	if s.size > p.t.opt.MaxBytes-size {
		return tooLarge(p.t.opt.MaxBytes)
	}
	failpoint("append.locked")
	if err := s.writeTo(f, size); err != nil {
		return err
	}
	failpoint("append.written")
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return err
	}
	return fsync(f)
}

// removeEmpty removes a file that this call created and could not fill. Callers that wait for its
// lock notice, and create it again.
func (p *place) removeEmpty(f *os.File) {
	var st unix.Stat_t
	if lock(f, 0) == nil && p.sameFile(f, &st) == nil && st.Size == 0 {
		_ = unix.Unlinkat(p.dir, p.name, 0) // the call has already failed with a better error
	}
}

// createEmpty creates the file if it does not exist, and then returns its directory, to be synced.
// It opens the directory first: the kernel may refuse that, and a refused call must have changed
// nothing.
func (p *place) createEmpty() (dir *os.File, err error) {
	if _, err := p.stat(); !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	if dir, err = openDir(p.dir); err != nil {
		return nil, err
	}
	fd, err := openat(p.dir, p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NONBLOCK, newMode)
	if errors.Is(err, unix.EEXIST) {
		return nil, dir.Close()
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, unix.Close(fd)
}

// spool holds content until it is complete, so that no lock is held during a slow caller's upload:
// one piece in memory, more in an unnamed file.
type spool struct {
	piece  bytes.Buffer
	file   *os.File
	size   int64
	filled bool
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

func (s *spool) fill(p *place, body io.Reader) error {
	if s.filled {
		return nil
	}
	s.filled = true
	n, err := s.piece.ReadFrom(io.LimitReader(body, filewire.MaxPiece+1))
	s.size = n
	if err == nil && n > filewire.MaxPiece {
		err = s.overflow(p, body)
	}
	return filewire.CutOff(err)
}

func (s *spool) overflow(p *place, body io.Reader) error {
	t, err := p.stage()
	if err != nil {
		return err
	}
	s.file = t.f
	if err := t.unname(); err != nil {
		return err
	}
	s.size, err = t.fill(io.MultiReader(&s.piece, body), p.t.opt.MaxBytes)
	s.piece = bytes.Buffer{}
	return err
}

// writeTo appends the content to f, which has size bytes and is locked: one write(2), or one for
// each piece. A write that a full disk cut short is undone, unless a writer without the lock has
// appended since.
func (s *spool) writeTo(f *os.File, size int64) error {
	done, err := s.pieces(f)
	if err == nil || done == 0 {
		return err
	}
	var st unix.Stat_t
	if e := unix.Fstat(int(f.Fd()), &st); e != nil {
		return errors.Join(err, e)
	}
	if st.Size != size+done {
		return fmt.Errorf("%d of %d bytes were appended: %w", done, s.size, err)
	}
	return errors.Join(err, f.Truncate(size))
}

func (s *spool) pieces(f *os.File) (done int64, err error) {
	if s.file == nil {
		n, err := f.Write(s.piece.Bytes())
		return int64(n), err
	}
	buf := make([]byte, filewire.MaxPiece)
	for done < s.size {
		n, err := s.file.ReadAt(buf, done)
		if n == 0 {
			return done, filewire.NoEOF(err)
		}
		w, err := f.Write(buf[:n])
		done += int64(w)
		if err != nil {
			return done, err
		}
		failpoint("append.piece")
	}
	return done, nil
}
