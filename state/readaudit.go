package state

import (
	"bufio"
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
	"go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"
)

// AuditLine is one line of the audit log as it was written. What callers and chats said is
// in it as they said it: escape it before it meets a terminal.
type AuditLine struct {
	Seq     uint64            `json:"seq"`
	Time    time.Time         `json:"time"`
	Action  string            `json:"action"`
	Outcome string            `json:"outcome"`
	Chat    chat.ID           `json:"chat"`
	UID     uint32            `json:"uid"`
	Caller  chat.Caller       `json:"caller"`
	Argv    []string          `json:"argv"`
	ArgvCut int               `json:"argv_cut"`
	Detail  map[string]string `json:"detail"`
	// Text is the line itself, ASCII without a newline.
	Text []byte `json:"-"`
}

// ReadAudit gives each every line of the log in a state directory, the oldest first, and
// with follow goes on with those that are written, until ctx ends. It needs no daemon, and
// disturbs none. A line that is no event is [chat.ErrInvalid].
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

// followEvery is how often a log that is followed is looked at; maxMissing how often one
// that a rotation has moved away may be missing, a tenth of that apart.
const (
	followEvery = 500 * time.Millisecond
	maxMissing  = 100
)

// auditReader reads one log in several files.
type auditReader struct {
	dir  string
	each func(AuditLine) error
	seq  uint64 // of the last line that was given
	// missing is how often in a row there was no log of the usual name.
	missing int
}

// all reads every file that holds lines which were not given yet. turned says that there
// are more by now: another log has taken the last one's name.
func (r *auditReader) all(ctx context.Context, follow bool) (turned bool, err error) {
	paths, err := AuditFiles(r.dir)
	if err != nil {
		return false, err
	}
	for i, path := range paths[:len(paths)-1] {
		if i+1 < len(paths)-1 && firstOf(paths[i+1]) <= r.seq+1 {
			continue // all of it was given
		}
		if err := r.whole(path); err != nil {
			return false, err
		}
	}
	last := paths[len(paths)-1]
	f, err := os.Open(last)
	if errors.Is(err, fs.ErrNotExist) && len(paths) > 1 && r.missing < maxMissing {
		// Between the two renames of a rotation there is none of that name.
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

// firstOf is the seq of an archive's first line, which its name says.
func firstOf(path string) (seq uint64) {
	if _, err := fmt.Sscanf(filepath.Base(path), "audit-%d.jsonl", &seq); err != nil {
		return math.MaxUint64
	}
	return seq
}

// whole reads a log that is not written to any more.
func (r *auditReader) whole(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed by a rotation meanwhile, as the oldest one
	}
	if err != nil {
		return err
	}
	_, err = r.lines(f)
	return errors.Join(err, f.Close())
}

// follow reads f to its end, which is there when another log has taken its name: turned.
func (r *auditReader) follow(ctx context.Context, f *os.File, path string, follow bool) (turned bool, err error) {
	for read := int64(0); ; {
		turned = checkSame(f, path) != nil
		n, err := r.lines(io.NewSectionReader(f, read, 1<<62))
		if read += n; err != nil || turned || !follow {
			return turned, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(followEvery):
		}
	}
}

// lines gives the whole lines of in that were not given yet, and how many bytes they are.
func (r *auditReader) lines(in io.Reader) (size int64, err error) {
	for b := bufio.NewReaderSize(in, 64<<10); ; {
		raw, err := readLine(b)
		if err == io.EOF || err == nil && !raw.whole {
			return size, nil
		}
		if err != nil {
			return size, err
		}
		size += raw.size
		l := AuditLine{Text: raw.text}
		if err := strictLine(raw, &l); err != nil {
			return size, fmt.Errorf("the line after seq %d: %w: %w", r.seq, err, chat.ErrInvalid)
		}
		if l.Seq <= r.seq {
			continue // of a log that was turned over while it was read
		}
		r.seq = l.Seq
		if err := r.each(l); err != nil {
			return size, err
		}
	}
}

// CheckAudit verifies the log in a state directory without a daemon: that its lines form a
// chain and, where no daemon holds the database, that the last line which that knows is
// among them. compared says whether it was. Lines cut off the end are seen only then.
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
		err = fmt.Errorf("it ends with line %d, and line %d, which the database knows to have been written, is not in it: %w", v.seq, want.Seq, chat.ErrInvalid)
	}
	if lines, err = v.verdict(err); err != nil {
		return lines, compared, fmt.Errorf("cannot verify audit log: %w", err)
	}
	return lines, compared, nil
}

// keptHead is the last line that the database knows of; [chat.ErrBusy] while a daemon has it.
func keptHead(path string) (h head, err error) {
	if _, err := os.Stat(path); err != nil {
		return h, fmt.Errorf("cannot read the database beside the audit log: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: 100 * time.Millisecond})
	if errors.Is(err, bolterr.ErrTimeout) {
		return h, fmt.Errorf("cannot open %s: chatd has it: %w", path, chat.ErrBusy)
	}
	if err != nil {
		return h, fmt.Errorf("cannot open %s: %w", path, err)
	}
	err = db.View(func(tx *bbolt.Tx) (err error) {
		h, err = getHead(tx)
		return err
	})
	return h, errors.Join(err, db.Close())
}
