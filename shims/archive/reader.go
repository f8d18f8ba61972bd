package archive

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
)

// reader reads the tar archive that a writer wrote, and nothing else.
type reader struct {
	in  io.Reader
	sum hash.Hash
	// left are the bytes of content that were not read.
	left, pad int64
}

func newReader(in io.Reader) *reader {
	sum := sha256.New()
	return &reader{in: io.TeeReader(in, sum), sum: sum}
}

// errDamaged is the error of a stream that Pack did not write.
func errDamaged(why string) error {
	return chat.Invalid("cannot read the archive: %s", why)
}

// full reads len(b) bytes.
func (r *reader) full(b []byte) error {
	_, err := io.ReadFull(r.in, b)
	return r.fault(err)
}

// fault makes the error of a stream that ends too early one of the kind invalid.
func (r *reader) fault(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errDamaged("it is cut off")
	case errors.Is(err, chat.ErrInvalid):
		return err
	}
	return chat.Invalid("cannot read the archive: %w", err)
}

// next reads one header; the content of the entry before was read. At the end of the archive it
// returns io.EOF, and nothing follows.
func (r *reader) next() (entry, error) {
	raw := make([]byte, blockSize)
	if err := r.full(raw); err != nil {
		return entry{}, err
	}
	if raw[156] == 0 {
		return entry{}, r.end(raw)
	}
	size := parseOctal(raw[124:135])
	if raw[156] != typeRecords || size > maxHeader {
		return entry{}, errDamaged("an entry begins without records, or with too many")
	}
	rest := make([]byte, size+int64(len(padding(size)))+blockSize)
	if err := r.full(rest); err != nil {
		return entry{}, err
	}
	e, err := decode(rest[:size], rest[len(rest)-blockSize:])
	if err == nil {
		err = e.check()
	}
	// One form for each entry: no second reading of the same bytes, no field that is not checked.
	var again []byte
	if err == nil {
		again, err = e.header()
	}
	if err != nil {
		return entry{}, err
	}
	if !bytes.Equal(again, append(raw, rest...)) {
		return entry{}, errDamaged("the header of " + chat.Quote(e.path) + " has another form")
	}
	r.left, r.pad = e.stored, int64(len(padding(e.stored)))
	return e, nil
}

// end wants two blocks of zeros, and the end.
func (r *reader) end(first []byte) error {
	second := make([]byte, blockSize)
	if err := r.full(second); err != nil {
		return err
	}
	if !zeros(first) || !zeros(second) {
		return errDamaged("it has neither an entry nor an end where one should be")
	}
	switch n, err := io.CopyN(io.Discard, r.in, 1); {
	case n > 0:
		return errDamaged("it goes on behind its end")
	case !errors.Is(err, io.EOF):
		return r.fault(err)
	}
	return io.EOF
}

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// decode reads the parts of an entry that its header writes; next compares the rest.
func decode(records, block []byte) (entry, error) {
	e := entry{kind: block[156], mode: uint32(parseOctal(block[100:107])),
		uid: uint32(parseOctal(block[108:115])), stored: parseOctal(block[124:135])}
	var err error
	for len(records) > 0 && err == nil {
		var key, value string
		if key, value, records, err = cutRecord(records); err == nil {
			err = e.set(key, value)
		}
	}
	if err != nil {
		return entry{}, errDamaged("a header: " + err.Error())
	}
	if !e.sparse {
		e.size = e.stored
	}
	return e, nil
}

func cutRecord(b []byte) (key, value string, rest []byte, err error) {
	digits, _, _ := bytes.Cut(b[:min(len(b), 9)], []byte(" "))
	n, err := strconv.ParseUint(string(digits), 10, 31)
	if err != nil || int(n) > len(b) || int(n) < len(digits)+2 || b[n-1] != '\n' {
		return "", "", nil, errors.New("a record without its length")
	}
	key, value, ok := strings.Cut(string(b[len(digits)+1:n-1]), "=")
	if !ok {
		return "", "", nil, errors.New("a record without a value")
	}
	return key, value, b[n:], nil
}

// set takes one record.
func (e *entry) set(key, value string) (err error) {
	switch key {
	case "path":
		e.path = value
	case "linkpath":
		e.target = value
	case "mtime":
		e.modified, err = parseTime(value)
	case "size":
		e.stored, err = strconv.ParseInt(value, 10, 64)
	case "uid", "gid":
		var id uint64
		id, err = strconv.ParseUint(value, 10, 32)
		e.uid = uint32(id)
	case "GNU.sparse.realsize":
		e.sparse = true
		e.size, err = strconv.ParseInt(value, 10, 64)
	case "GNU.sparse.major", "GNU.sparse.minor", "GNU.sparse.name":
	default:
		name, ok := strings.CutPrefix(key, attrPrefix)
		if !ok {
			return fmt.Errorf("the record %s", chat.Quote(key))
		}
		if e.attrs == nil {
			e.attrs = map[string]string{}
		}
		e.attrs[unescapeAttr.Replace(name)] = value
	}
	return err
}

// parseOctal is 0 for what is not an octal number, which no header says in that way.
func parseOctal(b []byte) int64 {
	n, _ := strconv.ParseUint(string(b), 8, 63)
	return int64(n)
}

// Read reads of the entry's content.
func (r *reader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.in.Read(b[:min(int64(len(b)), r.left)])
	r.left -= int64(n)
	if err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
		return n, r.fault(err)
	}
	return n, nil
}

// close reads the padding behind the content, which was read.
func (r *reader) close() error {
	b := make([]byte, r.pad)
	if err := r.full(b); err != nil {
		return err
	}
	if r.left != 0 || !zeros(b) {
		return errDamaged("a file has more content than its header says")
	}
	return nil
}

// extents reads the map of a sparse file, in the one form that [sparseMap] gives it.
func (r *reader) extents(size int64) (all []extent, err error) {
	var raw []byte // no buffer: what follows the map is content
	number := func(most int64) (n int64) {
		from := len(raw)
		for b := []byte{0}; b[0] != '\n' && err == nil && len(raw)-from < 21; raw = append(raw, b[0]) {
			_, err = io.ReadFull(r, b)
		}
		if err = r.fault(err); err == nil {
			n, err = strconv.ParseInt(string(raw[from:len(raw)-1]), 10, 64)
			if err != nil || n < 0 || n > most {
				err = errDamaged("the map of a sparse file")
			}
		}
		return n
	}
	end := int64(0)
	for range number(maxExtents + 1) {
		x := extent{at: number(size)}
		x.size = number(size - x.at)
		if err == nil && x.at < end {
			err = errDamaged("the map of a sparse file is not in order")
		}
		if err != nil {
			return nil, err
		}
		all, end = append(all, x), x.at+x.size
	}
	if err != nil {
		return nil, err
	}
	table := sparseMap(all)
	rest := make([]byte, max(0, len(table)-len(raw)))
	if _, err := io.ReadFull(r, rest); err != nil || string(raw)+string(rest) != table {
		return nil, errDamaged("the map of a sparse file")
	}
	return all, nil
}
