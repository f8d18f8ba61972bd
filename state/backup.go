package state

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	if err = s.writeParts(ctx, b, parts); err != nil {
		return b, fmt.Errorf("cannot back up to %s: %w", b.Path, err)
	}
	return b, nil
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

// part is one file of the archive.
type part struct {
	name  string
	size  int64
	write func(io.Writer) (int64, error)
}

// list returns the files with their sizes: the key first, the database last.
func (p parts) list(key []byte) ([]part, error) {
	all := []part{{keyName, keySize, bytes.NewReader(key).WriteTo}}
	for i, log := range p.logs {
		fi, err := log.Stat()
		if err != nil {
			return nil, err
		}
		size := fi.Size()
		if i == len(p.logs)-1 {
			size = p.length
		}
		all = append(all, part{filepath.Base(log.Name()), size, func(w io.Writer) (int64, error) {
			return io.Copy(w, io.NewSectionReader(log, 0, size))
		}})
	}
	return append(all, part{dbName, p.db.Size(), p.db.WriteTo}), nil
}

func (s *Store) writeParts(ctx context.Context, b chat.Backup, p parts) error {
	all, err := p.list(s.key)
	if err != nil {
		return err
	}
	size := uint64(0)
	for _, part := range all {
		size += uint64(part.size)
	}
	if free, ok := freeBytes(s.opts.Dir); ok && free < size+leastFree {
		return fmt.Errorf("it has %d bytes, and %d are free: %w", size, free, chat.ErrBusy)
	}
	return replaceFile(b.Path, func(f *os.File) error {
		out := tar.NewWriter(f)
		for _, part := range all {
			h := &tar.Header{Name: part.name, Size: part.size, Mode: 0o600, ModTime: b.At}
			if err := errors.Join(ctx.Err(), out.WriteHeader(h)); err != nil {
				return err
			}
			if _, err := part.write(out); err != nil {
				return err
			}
		}
		return out.Close()
	})
}
