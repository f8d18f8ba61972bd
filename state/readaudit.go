package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
)

// AuditLine is one line of the audit log as it was written. It holds text of callers and chats
// unchanged: escape it before printing it on a terminal.
type AuditLine struct {
	line
	Time time.Time `json:"time"`
	// Text is the line itself, ASCII without a newline.
	Text []byte `json:"-"`
}

// ReadAudit passes every line of the log in a state directory to each, the oldest first, and with
// follow also new lines, until ctx ends. It needs no daemon and does not disturb a running one. A
// line that is not an event is [chat.ErrInvalid].
func ReadAudit(ctx context.Context, dir string, follow bool, each func(AuditLine) error) error {
	r := auditReader{dir: dir, each: each}
	for turned := true; turned; {
		var err error
		if turned, err = r.all(ctx, follow); err != nil {
			return fmt.Errorf("cannot read audit log: %w", err)
		}
	}
	return nil
}

// followEvery is the polling interval of a followed log. A log that a rotation renamed may be
// missing maxMissing times in a row, polled at a tenth of the interval.
const (
	followEvery = 500 * time.Millisecond
	maxMissing  = 100
)

// auditReader reads one log in several files.
type auditReader struct {
	dir  string
	each func(AuditLine) error
	seq  uint64 // of the last line passed to each
	// missing counts how often in a row audit.jsonl was missing.
	missing int
}

// all reads every file with lines that were not passed on yet. turned means that there are more:
// another log has replaced the last one.
func (r *auditReader) all(ctx context.Context, follow bool) (turned bool, err error) {
	paths, err := AuditFiles(r.dir)
	if err != nil {
		return false, err
	}
	for i, path := range paths[:len(paths)-1] {
		if i+1 < len(paths)-1 && firstOf(paths[i+1]) <= r.seq+1 {
			continue // all of it was passed on
		}
		if err := r.whole(path); err != nil {
			return false, err
		}
	}
	last := paths[len(paths)-1]
	f, err := os.Open(last)
	if errors.Is(err, fs.ErrNotExist) && len(paths) > 1 && r.missing < maxMissing {
		// Between the two renames of a rotation there is no audit.jsonl.
		r.missing++
		time.Sleep(followEvery / 10)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	r.missing = 0
	turned, err = r.follow(ctx, f, last, follow)
	return turned, errors.Join(err, f.Close())
}

// firstOf is the seq of an archive's first line, from its name.
func firstOf(path string) (seq uint64) {
	if _, err := fmt.Sscanf(filepath.Base(path), "audit-%d.jsonl", &seq); err != nil {
		return math.MaxUint64
	}
	return seq
}

// whole reads a log that is no longer written.
func (r *auditReader) whole(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a rotation has removed it as the oldest
	}
	if err != nil {
		return err
	}
	_, err = r.lines(f)
	return errors.Join(err, f.Close())
}

// follow reads f to its end, which is final once another log has its name: turned.
func (r *auditReader) follow(
	ctx context.Context, f *os.File, path string, follow bool,
) (turned bool, err error) {
	for read := int64(0); ; {
		turned = checkSame(f, path) != nil
		n, err := r.lines(io.NewSectionReader(f, read, 1<<62))
		if read += n; err != nil || turned || !follow {
			return turned, err
		}
		if chat.Sleep(ctx, followEvery) != nil {
			return false, nil
		}
	}
}

// lines passes on the complete new lines of in, and returns how many bytes it read in complete
// lines.
func (r *auditReader) lines(in io.Reader) (size int64, err error) {
	for raw, err := range linesOf(in) {
		if err != nil || !raw.whole {
			return size, err
		}
		size += raw.size
		l, err := parseLine[AuditLine](raw)
		if err != nil {
			return size, chat.Invalid("the line after seq %d: %w", r.seq, err)
		}
		if l.Seq <= r.seq {
			continue // of a log that was rotated while it was read
		}
		r.seq, l.Text = l.Seq, raw.text
		if err := r.each(l); err != nil {
			return size, err
		}
	}
	return size, nil
}

// CheckAudit verifies the log in a state directory without a daemon: that its lines form a chain
// and, unless a daemon holds the database, that the last line in the database is among them.
// compared reports whether the database was read. Only then does a cut-off end show.
func CheckAudit(dir string) (lines int, compared bool, err error) {
	want, err := keptHead(filepath.Join(dir, dbName))
	if compared = err == nil; !compared && !errors.Is(err, chat.ErrBusy) {
		return 0, false, err
	}
	v := newReading()
	v.want = want
	paths, err := AuditFiles(dir)
	for _, path := range paths {
		if err == nil {
			err = v.path(path)
		}
	}
	if err == nil && compared && want.Seq > 0 && !v.found {
		err = chat.Invalid("it ends with line %d, and line %d, which the database knows to have been written, is not in it", v.seq, want.Seq)
	}
	if lines, err = v.verdict(err); err != nil {
		return lines, compared, fmt.Errorf("cannot verify audit log: %w", err)
	}
	return lines, compared, nil
}

// keptHead is the last line that the database names; [chat.ErrBusy] while a daemon holds the
// database.
func keptHead(path string) (h head, err error) {
	if _, err := os.Stat(path); err != nil {
		return h, fmt.Errorf("cannot read the database beside the audit log: %w", err)
	}
	db, _, err := openDB(path, true, 100*time.Millisecond)
	if err != nil {
		return h, err
	}
	err = guarded(path, func() (err error) {
		h, err = view(db, getHead)
		return err
	})
	return h, errors.Join(err, db.Close())
}
