package archive

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// listAttributes names the extended attributes of the user namespace.
func listAttributes(f *os.File) (names []string, err error) {
	n, err := unix.Flistxattr(int(f.Fd()), nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, 64<<10) // the kernel's XATTR_LIST_MAX
	if n, err = unix.Flistxattr(int(f.Fd()), b); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") {
			names = append(names, name)
		}
	}
	return names, nil
}

// attributes are the extended attributes that users may set.
func (p *packer) attributes(f *os.File, path string) (map[string]string, error) {
	names, err := listAttributes(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read its attributes: %w", err)
	}
	var all map[string]string
	held, value := 0, []byte(nil)
	for _, name := range names {
		if value == nil {
			value = make([]byte, 64<<10) // the kernel's XATTR_SIZE_MAX
		}
		n, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if err != nil {
			return nil, fmt.Errorf("cannot read its attribute %s: %w", chat.Quote(name), err)
		}
		if held += 3*len(name) + n + 64; held > maxRecords {
			p.s.leave(path, "attribute "+chat.Quote(name))
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = string(value[:n])
	}
	return all, nil
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
