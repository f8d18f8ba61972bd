package enforce

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/enforce/pathclass"
)

// fanEvent is one event of fanotify(7). fd is of a permission event; the rest is of
// an event about names.
type fanEvent struct {
	mask     uint64
	fd       int
	dir, old dirName
	child    handle
}

// handle names a file whatever it is called, and no other file after it: what
// name_to_handle_at(2) gives, behind the id of its file system.
type handle string

// dirName is a name in a directory.
type dirName struct {
	dir  handle
	name string
}

// parseEvents reads what one read(2) gave.
func parseEvents(b []byte) ([]fanEvent, error) {
	const header = unix.FAN_EVENT_METADATA_LEN
	var all []fanEvent
	for len(b) > 0 {
		if len(b) < header {
			return all, fmt.Errorf("cannot read an event of %d bytes", len(b))
		}
		size, version, start := int(binary.NativeEndian.Uint32(b)), b[4], int(binary.NativeEndian.Uint16(b[6:]))
		if version != unix.FANOTIFY_METADATA_VERSION || size > len(b) || start < header || start > size {
			return all, fmt.Errorf("cannot read an event of version %d and %d bytes", version, size)
		}
		e := fanEvent{mask: binary.NativeEndian.Uint64(b[8:]),
			fd: int(int32(binary.NativeEndian.Uint32(b[16:])))}
		for info := b[start:size]; len(info) >= 4; {
			n := int(binary.NativeEndian.Uint16(info[2:]))
			if n < 4 || n > len(info) {
				return all, fmt.Errorf("cannot read a record of %d bytes", n)
			}
			if err := e.record(info[0], info[4:n]); err != nil {
				return all, err
			}
			info = info[n:]
		}
		all = append(all, e)
		b = b[size:]
	}
	return all, nil
}

// record takes one information record into e.
func (e *fanEvent) record(kind byte, b []byte) error {
	at := &e.dir
	switch kind {
	case unix.FAN_EVENT_INFO_TYPE_FID:
		at = &dirName{}
	case unix.FAN_EVENT_INFO_TYPE_OLD_DFID_NAME:
		at = &e.old
	case unix.FAN_EVENT_INFO_TYPE_DFID_NAME, unix.FAN_EVENT_INFO_TYPE_NEW_DFID_NAME:
	default:
		return nil
	}
	if len(b) < 16 {
		return fmt.Errorf("cannot read a record of %d bytes", len(b))
	}
	n := int(binary.NativeEndian.Uint32(b[8:]))
	if n > len(b)-16 {
		return fmt.Errorf("cannot read a handle of %d bytes", n)
	}
	name, _, _ := bytes.Cut(b[16+n:], []byte{0})
	*at = dirName{makeHandle(b[:8], int32(binary.NativeEndian.Uint32(b[12:])), b[16:16+n]), string(name)}
	if kind == unix.FAN_EVENT_INFO_TYPE_FID {
		e.child = at.dir
	}
	return nil
}

func makeHandle(fsid []byte, kind int32, h []byte) handle {
	b := append(make([]byte, 0, 12+len(h)), fsid...)
	b = binary.NativeEndian.AppendUint32(b, uint32(kind))
	return handle(append(b, h...))
}

// fsid is the file system that a handle is of.
func (h handle) fsid() string {
	if len(h) < 12 {
		return ""
	}
	return string(h[:8])
}

// open opens the file as a place, by a descriptor on a mount of its file system.
func (h handle) open(mount int) (int, error) {
	if len(h) < 12 {
		return -1, unix.ESTALE
	}
	b := []byte(h)
	return unix.OpenByHandleAt(mount, unix.NewFileHandle(int32(binary.NativeEndian.Uint32(b[8:])), b[12:]),
		unix.O_PATH|unix.O_CLOEXEC)
}

// handleOf is the handle of what fd is open on; fsid is of its file system.
func handleOf(fd int, fsid string) (handle, error) { return handleIn(fd, "", fsid) }

// handleIn is the handle of name in dir.
func handleIn(dir int, name, fsid string) (handle, error) {
	h, _, err := unix.NameToHandleAt(dir, name, unix.AT_EMPTY_PATH)
	if err != nil {
		return "", fmt.Errorf("name_to_handle_at: %w", err)
	}
	return makeHandle([]byte(fsid), h.Type(), h.Bytes()), nil
}

// fsidOf is the id of fd's file system, as events carry it.
func fsidOf(fd int) (string, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return "", fmt.Errorf("statfs: %w", err)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(st.Fsid.Val[0]))
	return string(binary.NativeEndian.AppendUint32(b, uint32(st.Fsid.Val[1]))), nil
}

// newWatchedTree is the tree of b, which fd is open on. On a file system without handles, as
// overlayfs, the present names tell all: nothing moves on a read-only mount, and on others masks
// keep closed files where they are.
func newWatchedTree(b *pathclass.Base, fsid string, fd int) watchedTree {
	root, err := handleOf(fd, fsid)
	if err != nil {
		fsid = ""
	}
	return watchedTree{b, fsid, fd, root}
}
