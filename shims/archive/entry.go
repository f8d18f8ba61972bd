package archive

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// The kinds of entries, as tar's type flags.
const (
	typeFile      = '0'
	typeHardLink  = '1'
	typeSymlink   = '2'
	typeDirectory = '5'
	typeFIFO      = '6'
	typeRecords   = 'x' // the pax records of the entry that follows
)

// Bounds of an entry. Go's and GNU's readers have bounds of 1 MiB on records.
const (
	blockSize  = 512
	maxPath    = 64 << 10  // bytes of a path from the root of the tree
	maxRecords = 512 << 10 // bytes of an entry's attributes
	maxHeader  = 1 << 20   // bytes of an entry's pax records
	maxExtents = 16 << 10  // pieces of data in a sparse file; what follows is kept with its zeros
	maxName    = 255       // bytes of one name
)

// extent is a piece of data in a sparse file.
type extent struct{ at, size int64 }

// entry is one file of the tree.
type entry struct {
	path     string // from the root of the tree, clean
	kind     byte
	mode     uint32 // 01777 at most
	uid      uint32 // of the writer's tree: Unpack does not use it
	modified time.Time
	size     int64             // of a file, with its holes
	stored   int64             // bytes that follow the header
	sparse   bool              // the stored bytes begin with a map of extents
	target   string            // of a link: a path of the tree for a hard link, any text otherwise
	attrs    map[string]string // extended attributes
}

// header are the blocks before the content: pax records, and the entry's own.
func (e entry) header() ([]byte, error) {
	records := e.records()
	if len(records) > maxHeader {
		return nil, chat.Invalid("cannot archive %s: its header has %d bytes",
			chat.Quote(e.path), len(records))
	}
	out := e.block("PaxHeaders/entry", typeRecords, int64(len(records)), "")
	out = append(out, records...)
	out = append(out, padding(int64(len(records)))...)
	return append(out, e.block(shortName(e.path), e.kind, e.stored, shortName(e.target))...), nil
}

// shortName is a name for a reader of tar that knows no pax records.
func shortName(path string) string { return path[:min(len(path), 100)] }

// records are the pax records of the entry, in one order.
func (e entry) records() []byte {
	all := map[string]string{"path": e.path, "mtime": formatTime(e.modified)}
	if e.target != "" {
		all["linkpath"] = e.target
	}
	if e.stored > maxOctal11 {
		all["size"] = strconv.FormatInt(e.stored, 10)
	}
	if int64(e.uid) > maxOctal7 {
		id := strconv.FormatUint(uint64(e.uid), 10)
		all["uid"], all["gid"] = id, id
	}
	if e.sparse {
		all["GNU.sparse.major"], all["GNU.sparse.minor"] = "1", "0"
		all["GNU.sparse.name"] = e.path
		all["GNU.sparse.realsize"] = strconv.FormatInt(e.size, 10)
	}
	for name, value := range e.attrs {
		all[attrPrefix+escapeAttr.Replace(name)] = value
	}
	var out bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(all)) {
		writeRecord(&out, key, all[key])
	}
	return out.Bytes()
}

// attrPrefix and escapeAttr name extended attributes as GNU tar does.
const attrPrefix = "SCHILY.xattr."

var (
	escapeAttr   = strings.NewReplacer("%", "%25", "=", "%3D")
	unescapeAttr = strings.NewReplacer("%25", "%", "%3D", "=")
)

// writeRecord writes "LENGTH KEY=VALUE\n", where the length counts its own digits.
func writeRecord(out *bytes.Buffer, key, value string) {
	rest := len(key) + len(value) + 3
	n := rest + len(strconv.Itoa(rest))
	if len(strconv.Itoa(n))+rest != n {
		n = len(strconv.Itoa(n)) + rest
	}
	fmt.Fprintf(out, "%d %s=%s\n", n, key, value)
}

// The largest numbers of a header's fields.
const (
	maxOctal7  = 1<<21 - 1
	maxOctal11 = 1<<33 - 1
)

// block is one header block (ustar, POSIX.1-1988).
func (e entry) block(name string, kind byte, size int64, target string) []byte {
	b := make([]byte, blockSize)
	number := func(n, most int64) int64 {
		if n < 0 || n > most {
			return 0 // its pax record has it
		}
		return n
	}
	copy(b, name)
	uid := number(int64(e.uid), maxOctal7)
	copy(b[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00        %c%s", e.mode, uid, uid,
		number(size, maxOctal11), number(e.modified.Unix(), maxOctal11), kind, target))
	copy(b[257:], "ustar\x0000")
	copy(b[329:], "0000000\x000000000\x00")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// padding fills n bytes to whole blocks.
func padding(n int64) []byte { return make([]byte, (blockSize-n%blockSize)%blockSize) }

// formatTime is pax's form of a time, always with nanoseconds.
func formatTime(t time.Time) string {
	sec, nsec, sign := t.Unix(), int64(t.Nanosecond()), ""
	if sec < 0 {
		sign, sec = "-", -sec
		if nsec > 0 {
			sec, nsec = sec-1, 1e9-nsec
		}
	}
	return fmt.Sprintf("%s%d.%09d", sign, sec, nsec)
}

func parseTime(s string) (time.Time, error) {
	whole, part, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	sec, err := strconv.ParseInt(whole, 10, 48)
	if err != nil {
		return time.Time{}, err
	}
	nsec, err := strconv.ParseInt(part, 10, 32)
	if err != nil {
		return time.Time{}, err
	}
	if strings.HasPrefix(s, "-") {
		sec, nsec = -sec, -nsec
	}
	return time.Unix(sec, nsec), nil
}

// check wants an entry that Pack may write.
func (e entry) check() error {
	why := e.fault()
	if why == "" {
		return nil
	}
	return chat.Invalid("cannot use the entry %s: %s", chat.Quote(e.path), why)
}

func (e entry) fault() string {
	link := e.kind == typeHardLink || e.kind == typeSymlink
	switch {
	case !cleanPath(e.path):
		return "its path leaves the tree, is not clean, or is too long"
	case strings.IndexByte("01256", e.kind) < 0:
		return fmt.Sprintf("it has the type %q", e.kind)
	case e.mode&^0o1777 != 0:
		return fmt.Sprintf("it has the mode %o", e.mode)
	case e.kind == typeHardLink && !cleanPath(e.target):
		return "it links to what is not in the tree"
	case link == (e.target == "") || strings.Contains(e.target, "\x00"):
		return "its link has no target, or it has one without being a link"
	case e.kind != typeFile && (e.stored != 0 || e.size != 0 || e.sparse):
		return "it has content and is no file"
	case e.size < 0 || e.stored < 0 || !e.sparse && e.size != e.stored:
		return "its size cannot be"
	case len(e.attrs) > 0 && e.kind != typeFile && e.kind != typeDirectory:
		return "it has attributes and is neither file nor directory"
	}
	for name := range e.attrs {
		if !strings.HasPrefix(name, "user.") || len(name) > maxName ||
			strings.Contains(name, "\x00") {
			return "it has the attribute " + chat.Quote(name)
		}
	}
	return ""
}

// cleanPath reports whether path is relative and clean, without a component that leads elsewhere.
func cleanPath(path string) bool {
	if len(path) > maxPath {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." || len(name) > maxName ||
			strings.Contains(name, "\x00") {
			return false
		}
	}
	return true
}

// directoryOf is the path of the directory that holds a path.
func directoryOf(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

func join(path, name string) string { return strings.TrimPrefix(path+"/"+name, "/") }

func (e entry) name() string { return e.path[strings.LastIndexByte(e.path, '/')+1:] }
