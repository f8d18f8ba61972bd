package state

import (
	"archive/tar"
	"context"
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

// backupName is the archive of [Store.Backup] in the state directory.
const backupName = "backup.tar"

// Backup writes the state, as it is at one commit, into an uncompressed tar in the state directory,
// and replaces the former one. It holds what a kill at that moment would have left: install key,
// audit logs and database. Commits wait only until the files are open: bbolt keeps the pages of a
// read transaction, and the rest only grows. [chat.ErrBusy] means that another backup is being
// written, or that there is no room.
func (s *Store) Backup(ctx context.Context) (b chat.Backup, err error) {
	if !s.backingUp.TryLock() {
		return b, fmt.Errorf("cannot back up: another backup is being written: %w", chat.ErrBusy)
	}
	defer s.backingUp.Unlock()
	b = chat.Backup{Path: filepath.Join(s.opts.Dir, backupName), At: s.opts.Now().UTC().Truncate(time.Second)}
	parts, err := s.openParts(&b)
	defer func() { err = errors.Join(err, parts.close()) }()
	if err != nil {
		return b, fmt.Errorf("cannot back up: %w", err)
	}
	draft := b.Path + ".new"
	if err = s.writeParts(ctx, draft, parts, b.At); err == nil {
		err = errors.Join(os.Rename(draft, b.Path), syncDir(s.opts.Dir))
	}
	if err != nil {
		return b, errors.Join(fmt.Errorf("cannot back up to %s: %w", b.Path, err), s.removeDraft())
	}
	return b, nil
}

// removeDraft removes what a backup left that did not come to its end.
func (s *Store) removeDraft() error {
	err := os.Remove(filepath.Join(s.opts.Dir, backupName+".new"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// parts are the open files of a backup: all of a log but the last, of which length bytes count.
type parts struct {
	logs   []*os.File
	length int64
	db     *bbolt.Tx
}

func (p parts) close() (err error) {
	for _, f := range p.logs {
		err = errors.Join(err, f.Close())
	}
	if p.db != nil {
		err = errors.Join(err, p.db.Rollback())
	}
	return err
}

// openParts opens all parts at one commit.
func (s *Store) openParts(b *chat.Backup) (p parts, err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.flush(); err != nil {
		return p, err
	}
	var h head
	if p.logs, h, err = s.log.snapshot(s.opts.Dir); err == nil {
		p.db, err = s.db.Begin(false)
	}
	p.length, b.Chats, b.AuditSeq = h.Offset, s.Len(), h.Seq
	return p, err
}

func (s *Store) writeParts(ctx context.Context, path string, p parts, at time.Time) error {
	size := uint64(p.db.Size()) + keySize
	for _, f := range p.logs {
		if fi, err := f.Stat(); err == nil {
			size += uint64(fi.Size())
		}
	}
	if free, ok := freeBytes(s.opts.Dir); ok && free < size+leastFree {
		return fmt.Errorf("it has %d bytes, and %d are free: %w", size, free, chat.ErrBusy)
	}
	if err := s.removeDraft(); err != nil {
		return err
	}
	f, err := openPrivate(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	out := tar.NewWriter(f)
	put := func(name string, size int64, write func(io.Writer) (int64, error)) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: at}
		if err := errors.Join(ctx.Err(), out.WriteHeader(h)); err != nil {
			return err
		}
		_, err := write(out)
		return err
	}
	err = put(keyName, keySize, func(w io.Writer) (int64, error) {
		n, err := w.Write(s.key)
		return int64(n), err
	})
	for i, log := range p.logs {
		fi, serr := log.Stat()
		if err = errors.Join(err, serr); err != nil {
			break
		}
		length := fi.Size()
		if i == len(p.logs)-1 {
			length = p.length
		}
		err = put(filepath.Base(log.Name()), length, func(w io.Writer) (int64, error) {
			return io.Copy(w, io.NewSectionReader(log, 0, length))
		})
	}
	if err == nil {
		err = put(dbName, p.db.Size(), p.db.WriteTo)
	}
	if err == nil {
		err = errors.Join(out.Close(), f.Sync())
	}
	return errors.Join(err, f.Close())
}
