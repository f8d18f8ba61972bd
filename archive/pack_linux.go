package archive

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// Pack writes the tree below dir into out, encrypted to the age recipients, one a line, if there
// are any. dir itself is no entry. meter may be nil.
func Pack(dir *os.File, out io.Writer, recipients string, meter *Meter) (s Summary, err error) {
	stream, err := compress(out, recipients)
	if err != nil {
		return s, err
	}
	to := newWriter(stream, meter)
	p := newPacker(to, meter)
	if err := p.directory(dir, "", 1); err != nil {
		return p.s, err
	}
	if err := errors.Join(to.end(), stream.Close()); err != nil {
		return p.s, fmt.Errorf("cannot write the archive: %w", err)
	}
	p.s.SHA256 = hex.EncodeToString(to.sum.Sum(nil))
	return p.s, nil
}

// output takes what a packer finds: a [writer] or a [cloner].
type output interface {
	// begin takes an entry; of a sparse file the pieces too.
	begin(e entry, sparse []extent) error
	// content takes the content of the file that was begun, and returns how much that is.
	content(f *os.File, pieces []extent) (int64, error)
	// leave ends the directory that was begun last and not left.
	leave() error
}

func newPacker(to output, meter *Meter) *packer {
	return &packer{to: to, linked: map[inode]*linkedFile{}, meter: meter}
}

type packer struct {
	to     output
	s      Summary
	linked map[inode]*linkedFile
	held   int // bytes of paths in linked
	meter  *Meter
}

type inode struct{ dev, ino uint64 }

// linkedFile is a file of which more names are expected.
type linkedFile struct {
	path string
	more uint64
}

// maxLinked bounds the bytes of paths that Pack holds to find hard links.
const maxLinked = 64 << 20

// batch is how many names of a directory are read together.
const batch = 256

// directory writes what is in dir, which is at path.
func (p *packer) directory(dir *os.File, path string, depth int) error {
	for {
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if err := p.one(dir, name, join(path, name), depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return cannotRead(path, err)
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "/" + name
}

// entryError names the entry that could not be packed: the innermost one.
type entryError struct {
	path string
	err  error
}

func (e *entryError) Error() string {
	return fmt.Sprintf("cannot archive %s: %v", chat.Quote(e.path), e.err)
}

func (e *entryError) Unwrap() error { return e.err }

func cannotRead(path string, err error) error {
	if inner := new(entryError); errors.As(err, &inner) {
		return err
	}
	return &entryError{path, err}
}

// one writes the entry of one name.
func (p *packer) one(dir *os.File, name, path string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return cannotRead(path, err)
	}
	e := entry{path: path, mode: st.Mode & 0o777, uid: st.Uid, modified: time.Unix(st.Mtim.Unix())}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.kind, e.mode = typeDirectory, st.Mode&0o1777
		if depth >= maxDepth || len(path) > maxPath-maxName {
			err = fmt.Errorf("it is over %d levels deep, or its path is too long: %w", maxDepth,
				chat.ErrInvalid)
			break
		}
		err = p.subdirectory(dir, name, e, &st, depth)
	case unix.S_IFREG:
		e.kind = typeFile
		err = p.fileOrLink(dir, name, e, &st)
	case unix.S_IFLNK:
		e.kind = typeSymlink
		if e.target, err = readlink(dir, name); err == nil {
			err = p.header(e, nil)
		}
	case unix.S_IFIFO:
		e.kind = typeFIFO
		err = p.header(e, nil)
	default:
		p.s.leave(path, "a socket or device")
	}
	if err != nil {
		return cannotRead(path, err)
	}
	return nil
}

func readlink(dir *os.File, name string) (string, error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, b)
	return string(b[:max(0, n)]), err
}

// header counts and writes an entry without its content.
func (p *packer) header(e entry, sparse []extent) error {
	p.s.Entries++
	p.meter.entry()
	return p.to.begin(e, sparse)
}

func (p *packer) subdirectory(
	parent *os.File, name string, e entry, st *unix.Stat_t, depth int,
) (err error) {
	dir, restore, err := openOwn(parent, name, st)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore(), dir.Close()) }()
	if e.attrs, err = p.attributes(dir, e.path); err != nil {
		return err
	}
	if err := p.header(e, nil); err != nil {
		return err
	}
	if err := p.directory(dir, e.path, depth+1); err != nil {
		return err
	}
	return p.to.leave()
}

// openOwn opens a file or directory that its owner may not read, by changing its mode until
// restore is called.
func openOwn(parent *os.File, name string, st *unix.Stat_t) (*os.File, func() error, error) {
	want, flags := uint32(0o400), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want, flags = 0o500, flags|unix.O_DIRECTORY
	}
	mode, restore := st.Mode&0o7777, func() error { return nil }
	if mode&want != want {
		set := func(mode uint32) error { return unix.Fchmodat(int(parent.Fd()), name, mode, 0) }
		if err := set(mode | want); err != nil {
			return nil, nil, fmt.Errorf("cannot make it readable: %w", err)
		}
		restore = func() error { return set(mode) }
	}
	fd, err := unix.Openat(int(parent.Fd()), name, flags, 0)
	if err != nil {
		return nil, nil, errors.Join(err, restore())
	}
	f := os.NewFile(uintptr(fd), name)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Ino != st.Ino || now.Dev != st.Dev {
		return nil, nil, errors.Join(err, changed(), restore(), f.Close())
	}
	return f, restore, nil
}

func changed() error { return fmt.Errorf("it changed while it was read: %w", chat.ErrConflict) }

// fileOrLink writes a file, or a hard link to one that was written.
func (p *packer) fileOrLink(dir *os.File, name string, e entry, st *unix.Stat_t) error {
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first := p.linked[id]; first != nil {
			if first.more--; first.more == 0 {
				p.held -= len(first.path)
				delete(p.linked, id)
			}
			e.kind, e.target, e.size = typeHardLink, first.path, 0
			return p.header(e, nil)
		}
		if p.held+len(e.path) > maxLinked {
			p.s.Copied++
		} else {
			p.linked[id] = &linkedFile{e.path, uint64(st.Nlink) - 1}
			p.held += len(e.path)
		}
	}
	return p.file(dir, name, e, st)
}

func (p *packer) file(dir *os.File, name string, e entry, st *unix.Stat_t) (err error) {
	f, restore, err := openOwn(dir, name, st)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore(), f.Close()) }()
	e.size = st.Size
	if e.attrs, err = p.attributes(f, e.path); err != nil {
		return err
	}
	pieces, sparse, err := extents(f, e.size)
	if err != nil {
		return err
	}
	var table []extent
	if sparse {
		table = pieces
	}
	if err := p.header(e, table); err != nil {
		return err
	}
	n, err := p.to.content(f, pieces)
	p.s.Bytes += n
	return err
}

// extents are the pieces of data of a file. A sparse file has holes between them, and its last
// piece, which may be empty, ends with the file.
func extents(f *os.File, size int64) (all []extent, sparse bool, err error) {
	var sum int64
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && from >= size {
			break // a hole to the end
		}
		if err != nil {
			return nil, false, fmt.Errorf("cannot find its holes: %w", err)
		}
		to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return nil, false, fmt.Errorf("cannot find its holes: %w", err)
		}
		if to = min(to, size); len(all) == maxExtents-1 {
			to = size
		}
		all, sum, at = append(all, extent{from, to - from}), sum+to-from, to
	}
	if sum == size {
		return all, false, nil
	}
	if last := len(all) - 1; last < 0 || all[last].at+all[last].size < size {
		all = append(all, extent{size, 0})
	}
	return all, true, nil
}
