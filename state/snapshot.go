package state

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// Snapshot is a copy of a state as it was at one commit of its database: what a kill at that moment
// would have left. The caller closes it.
type Snapshot struct {
	// Version is that of the database, Chats how many it has, and Given how many uids it gave.
	Version, Chats, Given int
	// Seq and Hash are of the last line of the audit log; of a log without lines 0 and zeros.
	Seq  uint64
	Hash string
	// Files are the database, the key and the audit logs, the oldest first, by their names in a
	// state directory. They are open, and stay as they are.
	Files []SnapshotFile

	closers []io.Closer
}

// SnapshotFile is one file: its first Size bytes are part of the snapshot.
type SnapshotFile struct {
	Name string
	Size int64
	From io.ReaderAt
}

// Close closes the files.
func (s *Snapshot) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// A daemon holds the lock of its database, so the copy is made without one. bbolt never writes over
// a page of its last commit: the commit after it writes free pages and then one of the two meta
// pages, and only the next but one may take pages that it left. So a copy is whole if the meta pages
// are the same after it as before it. Otherwise it is made again. A daemon begins no commit while a
// copy is made (holdCommits), so that some copy is whole; that it is does not depend on it.
const (
	snapshotTimeout = 30 * time.Second
	snapshotPause   = 5 * time.Millisecond
)

// errMoved means that the daemon committed while its database was copied.
var errMoved = fmt.Errorf("the database changed faster than it could be copied: %w", chat.ErrBusy)

// TakeSnapshot copies the state in dir, also while a daemon writes it. A daemon's commits wait for
// the copy of the database, and no longer than a second. What it returns was verified: every page
// and record of the database, that the key is the database's, and the audit log up to the line that
// the database names. [chat.ErrBusy] means that a daemon that does not wait wrote too fast for 30
// seconds.
func TakeSnapshot(ctx context.Context, dir string) (*Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, snapshotTimeout, errMoved)
	defer cancel()
	for {
		s, moved, err := tryCopy(dir)
		if err == nil {
			return s, nil
		}
		if !moved {
			return nil, fmt.Errorf("cannot copy the state in %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot copy the state in %s: %w", dir,
				errors.Join(context.Cause(ctx), err))
		case <-time.After(snapshotPause):
		}
	}
}

// tryCopy makes one attempt. moved means that the daemon committed meanwhile, so that another may
// succeed.
func tryCopy(dir string) (s *Snapshot, moved bool, err error) {
	s = &Snapshot{}
	live, err := openPrivate(filepath.Join(dir, dbName), os.O_RDONLY)
	if err != nil {
		return nil, false, err
	}
	s.closers = append(s.closers, live)
	before, err := metaPages(live)
	if err == nil {
		err = s.collect(dir, live)
	}
	if err == nil {
		return s, false, nil
	}
	after, merr := metaPages(live)
	moved = errors.Is(err, errMoved) || merr == nil && !bytes.Equal(before, after)
	return nil, moved, errors.Join(err, s.Close())
}

// copyTries is how many copies are made while commits wait: the commit under way at their beginning
// may overtake one.
const copyTries = 3

// copyWhole makes a copy that no commit overtook.
func (s *Snapshot) copyWhole(dir string, live *os.File) (db *bbolt.DB, copied *os.File, err error) {
	release, err := holdCommits(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	for range copyTries {
		before, err := metaPages(live)
		if err != nil {
			return nil, nil, err
		}
		db, copied, err = copyDB(live)
		if err == nil {
			s.closers = append(s.closers, db, copied)
		}
		if after, merr := metaPages(live); merr != nil || bytes.Equal(before, after) {
			return db, copied, errors.Join(err, merr)
		}
	}
	return nil, nil, errMoved
}

// metaPages are the two pages that name the last commit; of some more bytes, where a page is small.
func metaPages(f *os.File) ([]byte, error) {
	b := make([]byte, 2*os.Getpagesize())
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

func (s *Snapshot) collect(dir string, live *os.File) error {
	db, copied, err := s.copyWhole(dir, live)
	if err != nil {
		return err
	}
	var h head
	err = guarded(live.Name(), func() (err error) {
		h, err = s.verifyDB(db, copied)
		return err
	})
	if err == nil {
		err = s.addKey(dir, db)
	}
	if err == nil {
		err = s.addLogs(dir, h)
	}
	return err
}

// copyStep is called between the meta pages and the rest; tests let a daemon write there.
var copyStep = func() {}

// copyDB copies a database into a file without a name, and opens the copy.
func copyDB(live *os.File) (*bbolt.DB, *os.File, error) {
	f, err := os.CreateTemp("", "chatd-backup-")
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make room for a copy: %w", err)
	}
	in := io.NewSectionReader(live, 0, 1<<62)
	_, err = io.CopyN(f, in, int64(2*os.Getpagesize()))
	copyStep()
	if err == nil {
		_, err = io.Copy(f, in)
	}
	if errors.Is(err, io.EOF) { // a file of one page is refused below
		err = nil
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot copy %s: %w", live.Name(), err),
			os.Remove(f.Name()), f.Close())
	}
	db, _, err := openDB(f.Name(), true)
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return db, f, nil
}

// verifyDB reads all of the copy, and returns the head of the audit log.
func (s *Snapshot) verifyDB(db *bbolt.DB, copied *os.File) (h head, err error) {
	st := &Store{db: db}
	if err := st.load(); err != nil {
		return h, err
	}
	s.Chats, s.Given = st.Len(), st.Given()
	err = db.View(func(tx *bbolt.Tx) (err error) {
		if s.Version, err = versionOf(tx); err != nil {
			return err
		}
		for broken := range tx.Check() {
			err = errors.Join(err, broken)
		}
		if err != nil {
			return damaged(copied.Name(), err)
		}
		s.Files = append(s.Files, SnapshotFile{dbName, tx.Size(), copied})
		if _, err = getOutbox(tx); err == nil {
			h, err = getHead(tx)
		}
		return err
	})
	s.Seq, s.Hash = h.Seq, h.Hash
	return h, err
}

func (s *Snapshot) addKey(dir string, db *bbolt.DB) error {
	path := filepath.Join(dir, keyName)
	key, err := readKey(path)
	if err != nil {
		return err
	}
	want, err := keyPrint(db)
	if sum := sha256.Sum256(key); err == nil && !bytes.Equal(want, sum[:]) {
		err = fmt.Errorf("cannot use %s: it is not the key of the database beside it: %w", path,
			chat.ErrInvalid)
	}
	s.Files = append(s.Files, SnapshotFile{keyName, keySize, bytes.NewReader(key)})
	return err
}

// addLogs opens the logs up to the head's line, and verifies them. The log that has this line is
// audit.jsonl, or was archived since. Without a line audit.jsonl is empty.
func (s *Snapshot) addLogs(dir string, h head) error {
	if h.Seq == 0 {
		s.Files = append(s.Files, SnapshotFile{auditName, 0, bytes.NewReader(nil)})
		return nil
	}
	names, err := archives(dir)
	if err != nil {
		return fmt.Errorf("cannot list the audit logs: %w", err)
	}
	var files []*os.File
	last := archiveName(h.BaseSeq + 1)
	for _, name := range names {
		if name < last {
			f, err := s.openLog(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			files = append(files, f)
		}
	}
	f, err := s.openLog(filepath.Join(dir, last))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = s.openLog(filepath.Join(dir, auditName))
	}
	if err != nil {
		return err
	}
	if _, err = verifyUpTo(append(files, f), h); err != nil {
		return fmt.Errorf("cannot verify the audit log: %w", err)
	}
	for _, f := range files {
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		s.Files = append(s.Files, SnapshotFile{filepath.Base(f.Name()), fi.Size(), f})
	}
	s.Files = append(s.Files, SnapshotFile{auditName, h.Offset, f})
	return nil
}

func (s *Snapshot) openLog(path string) (*os.File, error) {
	f, err := openPrivate(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, f)
	return f, nil
}
