package archive

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// attributes are the extended attributes that users may set.
func (p *packer) attributes(f *os.File, path string) (all map[string]string, err error) {
	n, err := unix.Flistxattr(int(f.Fd()), p.buf[:])
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		return nil, fmt.Errorf("cannot read its attributes: %w", err)
	}
	held := 0
	for name := range strings.SplitSeq(string(p.buf[:max(0, n)]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		n, err := unix.Fgetxattr(int(f.Fd()), name, p.buf[:])
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
		all[name] = string(p.buf[:n])
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
