package files

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chatd/chatd/internal/filewire"

	"golang.org/x/sys/unix"
)

// ListDir is list_dir: a line for each entry, in the order of their bytes. It holds only as many
// names as requested, however many there are.
func (t *Tools) ListDir(a filewire.ListDir, begin filewire.Begin) (filewire.Answer, error) {
	a.Path = cmp.Or(a.Path, ".")
	return t.do(filewire.ListDirTool, a, func() (out filewire.Answer, err error) {
		after, err := unprintable(a.After)
		if err != nil {
			return out, err
		}
		d, out, err := t.openToRead(a.Path, (*place).openList)
		if err != nil {
			return out, err
		}
		defer d.Close()
		err = list1(d, after, cmp.Or(a.Limit, filewire.DefaultEntries), &out, begin)
		return out, err
	})
}

// openList opens a directory for reading. O_DIRECTORY keeps open(2) from doing
// anything else with what is there.
func (p *place) openList() (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	if len(p.missing) > 0 {
		return nil, st, unix.ENOENT
	}
	fd, err := openat(p.dir, p.name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ELOOP) {
		err = errMoved
	}
	if err != nil {
		return nil, st, err
	}
	if err = errors.Join(unix.Fstat(fd, &st), checkName(fd, p.real)); err != nil {
		unix.Close(fd)
		return nil, st, err
	}
	return os.NewFile(uintptr(fd), p.real), st, nil
}

func list1(d *os.File, after string, limit int, out *filewire.Answer, begin filewire.Begin) error {
	names, err := firstNames(d, after, limit+1)
	if err != nil {
		return err
	}
	if len(names) > limit {
		names = names[:limit]
		out.Truncated, out.NextEntry = true, printable(names[limit-1])
	}
	w := begin(*out)
	var lines strings.Builder
	for _, name := range names {
		var st unix.Stat_t
		err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue // it has been removed meanwhile
		}
		if err != nil {
			return err
		}
		kind := "FILE: "
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			kind = "DIR:  "
		}
		out.Entries++
		lines.WriteString(kind + printable(name) + "\n")
	}
	n, err := io.WriteString(w, lines.String())
	out.Bytes = int64(n)
	return err
}

// firstNames are the first n names after one, sorted.
func firstNames(d *os.File, after string, n int) ([]string, error) {
	var names []string
	for {
		batch, err := d.Readdirnames(512)
		for _, name := range batch {
			if name > after {
				names = append(names, name)
			}
		}
		done := errors.Is(err, io.EOF)
		if len(names) > 2*n || done {
			slices.Sort(names)
			names = names[:min(n, len(names))]
		}
		switch {
		case done:
			return names, nil
		case err != nil:
			return nil, err
		}
	}
}

// printable quotes, as Go source, names with a line end, which would be two entries, names that are
// not UTF-8, which JSON cannot carry, and names that look quoted.
func printable(name string) string {
	unclear := func(r rune) bool { return !unicode.IsPrint(r) }
	if !utf8.ValidString(name) || strings.HasPrefix(name, `"`) || strings.ContainsFunc(name, unclear) {
		return strconv.Quote(name)
	}
	return name
}

// unprintable is the name that printable made into s.
func unprintable(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	name, err := strconv.Unquote(s)
	if err != nil {
		return "", filewire.Invalid("cannot list after that name: its quotes are not those of list_dir")
	}
	return name, nil
}
