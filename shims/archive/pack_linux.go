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
// are any. dir itself is not an entry. meter may be nil.
func Pack(dir *os.File, out io.Writer, recipients string, meter *Meter) (s Summary, err error) {
	stream, err := compress(out, recipients)
	if err != nil {
		return s, err
	}
	to := newWriter(stream)
	p := newPacker(to, meter)
	if err := p.tree(dir); err != nil {
		return p.s, err
	}
	if err := errors.Join(to.end(), stream.Close()); err != nil {
		return p.s, fmt.Errorf("cannot write the archive: %w", err)
	}
	p.s.SHA256 = hex.EncodeToString(to.sum.Sum(nil))
	return p.s, nil
}

func newPacker(to tree, meter *Meter) *packer {
	return &packer{to: to, linked: map[inode]*linkedFile{}, meter: meter}
}

type packer struct {
	to   tree
	at   descent
	path string // of the directory that is packed
	// buf is for what the kernel says of names, links and attributes: XATTR_LIST_MAX, XATTR_SIZE_MAX.
	buf    [64 << 10]byte
	s      Summary
	linked map[inode]*linkedFile
	held   int // bytes of paths in linked
	meter  *Meter
}

// linkedFile is a file of which more names are expected.
type linkedFile struct {
	path string
	more uint64
}

// maxLinked bounds the bytes of paths that Pack holds to find hard links.
const maxLinked = 64 << 20

// tree writes what is below dir.
func (p *packer) tree(dir *os.File) (err error) {
	p.at = newDescent(dir)
	defer func() { err = errors.Join(err, p.at.leaveAll()) }()
	for {
		name, err := p.next()
		switch {
		case err == nil:
			err = p.one(name, join(p.path, name))
		case !errors.Is(err, io.EOF):
			err = cannotRead(p.path, err)
		case p.path == "":
			return nil
		default:
			err = p.leave()
		}
		if err != nil {
			return err
		}
	}
}

// next is a name in the directory that is packed; io.EOF is its end.
func (p *packer) next() (string, error) {
	l, fd := p.at.last(), p.at.fd()
	for len(l.names) == 0 {
		var err error
		if l.at, err = unix.Seek(fd, 0, io.SeekCurrent); err != nil {
			return "", err
		}
		n, err := unix.ReadDirent(fd, p.buf[:8<<10])
		if err != nil {
			return "", err
		}
		if n <= 0 {
			return "", io.EOF
		}
		_, _, l.names = unix.ParseDirent(p.buf[:n], -1, nil)
	}
	name := l.names[0]
	l.names = l.names[1:]
	return name, nil
}

// leave goes on in the parent of the directory that was packed.
func (p *packer) leave() error {
	left, again, err := p.at.up()
	if err == nil && again {
		err = p.skipTo(left.name)
	}
	if err == nil {
		err = p.to.leave()
	}
	if err != nil {
		return cannotRead(p.path, err)
	}
	p.path = directoryOf(p.path)
	return nil
}

// skipTo skips what was packed, up to name: from where that was read, or from the beginning if the
// file system does not keep such places.
func (p *packer) skipTo(name string) error {
	l := p.at.last()
	for _, at := range []int64{l.at, 0} {
		if _, err := unix.Seek(p.at.fd(), at, io.SeekStart); err != nil {
			return err
		}
		l.names = nil
		for {
			next, err := p.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || next == name {
				return err
			}
		}
	}
	return changed()
}

func cannotRead(path string, err error) error {
	return fmt.Errorf("cannot archive %s: %w", chat.Quote(path), err)
}

// one writes the entry of one name.
func (p *packer) one(name, path string) error {
	st, err := p.at.stat(name)
	if err != nil {
		return cannotRead(path, err)
	}
	e := entry{path: path, mode: st.Mode & 0o777, uid: st.Uid, modified: time.Unix(st.Mtim.Unix())}
	switch kind := st.Mode & unix.S_IFMT; {
	case len(path) > maxPath:
		err = chat.Invalid("its path has over %d bytes, in %d directories: remove or move what is there, "+
			"or reap the chat without an archive", maxPath, len(p.at.levels))
	case kind == unix.S_IFDIR:
		e.kind, e.mode = typeDirectory, st.Mode&0o1777
		err = p.subdirectory(name, e, &st)
	case kind == unix.S_IFREG:
		e.kind = typeFile
		err = p.fileOrLink(name, e, &st)
	case kind == unix.S_IFLNK:
		var n int
		if n, err = unix.Readlinkat(p.at.fd(), name, p.buf[:]); err == nil {
			e.kind, e.target = typeSymlink, string(p.buf[:n])
			err = p.add(e, nil)
		}
	case kind == unix.S_IFIFO:
		e.kind = typeFIFO
		err = p.add(e, nil)
	default:
		p.s.leave(path, "a socket or device")
	}
	if err != nil {
		return cannotRead(path, err)
	}
	return nil
}

// add counts and passes on an entry.
func (p *packer) add(e entry, c *content) error {
	p.s.Entries++
	p.meter.entry()
	if c != nil {
		p.s.Bytes += c.size
	}
	return p.to.add(e, c)
}

// subdirectory writes the entry of a directory, and goes on in it.
func (p *packer) subdirectory(name string, e entry, st *unix.Stat_t) error {
	dir, err := p.at.open(name, st)
	if err != nil {
		return err
	}
	p.at.down(dir)
	if e.attrs, err = p.attributes(dir.dir, e.path); err != nil {
		return err
	}
	p.path = e.path
	return p.add(e, nil)
}

// fileOrLink writes a file, or a hard link to one that was written.
func (p *packer) fileOrLink(name string, e entry, st *unix.Stat_t) error {
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first := p.linked[id]; first != nil {
			if first.more--; first.more == 0 {
				p.held -= len(first.path)
				delete(p.linked, id)
			}
			e.kind, e.target = typeHardLink, first.path
			return p.add(e, nil)
		}
		if p.held+len(e.path) > maxLinked {
			p.s.Copied++
		} else {
			p.linked[id] = &linkedFile{e.path, uint64(st.Nlink) - 1}
			p.held += len(e.path)
		}
	}
	return p.file(name, e, st)
}

func (p *packer) file(name string, e entry, st *unix.Stat_t) (err error) {
	opened, err := p.at.open(name, st)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.close()) }()
	e.size = st.Size
	if e.attrs, err = p.attributes(opened.dir, e.path); err != nil {
		return err
	}
	c := &content{file: opened.dir}
	if c.pieces, e.sparse, err = extents(c.file, e.size); err != nil {
		return err
	}
	var all []io.Reader
	for _, x := range c.pieces {
		c.size += x.size
		all = append(all, io.NewSectionReader(c.file, x.at, x.size))
	}
	c.Reader = io.TeeReader(io.MultiReader(all...), p.meter)
	return p.add(e, c)
}
