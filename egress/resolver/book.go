package resolver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"

	"github.com/chatd/chatd/chat"
)

const (
	// maxNames is how many names of a chat get an address in one session.
	maxNames = 4096
	// firstOffset leaves the low addresses of both prefixes to the network's own uses.
	firstOffset = 0x100
	// maxLine is the longest line of a book: a name of [chat.CheckHost] and its end.
	maxLine = 254
)

// V4Names and V6Names are the prefixes of made-up addresses: [chat.NamePrefixes].
var V4Names, V6Names = chat.NamePrefixes()

// ErrFull is the error for one name more than a book holds.
var ErrFull = errors.New("the chat has asked for too many names")

// MadeUp reports whether an address is in [V4Names] or [V6Names].
func MadeUp(a netip.Addr) bool {
	a = a.Unmap()
	return V4Names.Contains(a) || V6Names.Contains(a)
}

// Book is the made-up addresses of one chat's names. A name keeps its addresses as long as the
// book's file is there. Its methods are safe for concurrent use.
type Book struct {
	mu    sync.Mutex
	file  *os.File
	size  int64    // of the whole lines in file
	names []string // by index
	index map[string]int
}

// OpenBook reads the names that an earlier chatd-egress gave addresses to, in file, and appends new
// ones to it: one name a line, whose number is the index. It takes the file, and closes it if it
// fails.
func OpenBook(file *os.File) (*Book, error) {
	b := &Book{file: file, index: map[string]int{}}
	if err := b.load(); err != nil {
		err = fmt.Errorf("cannot read the names of a chat: %w", err)
		return nil, errors.Join(err, file.Close())
	}
	return b, nil
}

// load reads the whole lines of the file, whose offset an earlier chatd-egress may share and have
// moved. An unfinished line is not a name: see write.
func (b *Book) load() error {
	if _, err := b.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(b.file, maxNames*maxLine+1))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		name, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole {
			break
		}
		if err := b.check(string(name)); err != nil {
			return fmt.Errorf("line %d: %w", len(b.names)+1, err)
		}
		b.insert(string(name))
		b.size += int64(len(line))
	}
	return nil
}

// check refuses a name that cannot have the next index.
func (b *Book) check(name string) error {
	host, err := chat.CheckHost(name)
	_, twice := b.index[name]
	switch {
	case err != nil:
		return err
	case host != name:
		return fmt.Errorf("%s is not in canonical form", chat.Quote(name))
	case twice:
		return fmt.Errorf("%s is there twice", chat.Quote(name))
	case len(b.names) == maxNames:
		return ErrFull
	}
	return nil
}

func (b *Book) insert(name string) {
	b.index[name] = len(b.names)
	b.names = append(b.names, name)
}

// Addrs returns the made-up addresses of a name, which has the form of [chat.CheckHost]. A new name
// gets the next ones, and [ErrFull] if there are none.
func (b *Book) Addrs(host string) (v4, v6 netip.Addr, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.index[host]; !known {
		if err := b.append(host); err != nil {
			err = fmt.Errorf("cannot give %s an address: %w", chat.Quote(host), err)
			return netip.Addr{}, netip.Addr{}, err
		}
	}
	i := b.index[host]
	return addrAt(V4Names, i), addrAt(V6Names, i), nil
}

// append adds a new name to the file, then to the book. The write need not reach the disk: when the
// host ends, so does the session.
func (b *Book) append(host string) error {
	if err := b.check(host); err != nil {
		return err
	}
	if err := b.write(host + "\n"); err != nil {
		return err
	}
	b.insert(host)
	return nil
}

// write writes a line after the last whole one. It removes what a crash or a full disk left there
// of an earlier write. No chat knows an address of that, because the write comes before the answer.
func (b *Book) write(line string) error {
	if err := b.file.Truncate(b.size); err != nil {
		return err
	}
	if _, err := b.file.Seek(b.size, io.SeekStart); err != nil {
		return err
	}
	n, err := b.file.WriteString(line)
	if err == nil {
		b.size += int64(n)
	}
	return err
}

// Host returns the name that has a made-up address. An IPv4 address may be written as IPv6, as
// sockets for both families report it.
func (b *Book) Host(a netip.Addr) (host string, ok bool) {
	i, ok := indexOf(a.Unmap())
	b.mu.Lock()
	defer b.mu.Unlock()
	if !ok || i >= len(b.names) {
		return "", false
	}
	return b.names[i], true
}

// Close closes the file.
func (b *Book) Close() error { return b.file.Close() }

// addrAt returns the address of an index. Its offset is the last two bytes, in both families.
func addrAt(p netip.Prefix, i int) netip.Addr {
	bytes := p.Addr().AsSlice()
	binary.BigEndian.PutUint16(bytes[len(bytes)-2:], uint16(firstOffset+i))
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// indexOf is the inverse of addrAt, for any address.
func indexOf(a netip.Addr) (int, bool) {
	if !MadeUp(a) {
		return 0, false
	}
	bytes := a.AsSlice()
	i := int(binary.BigEndian.Uint16(bytes[len(bytes)-2:])) - firstOffset
	if i < 0 || i >= maxNames {
		return 0, false
	}
	return i, a == addrAt(V4Names, i) || a == addrAt(V6Names, i)
}
