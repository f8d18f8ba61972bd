package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// flushDelay is how long a lazy change may wait for a commit of its own.
const flushDelay = time.Second

// errClosed has no kind of package chat: using a closed store is a bug of the caller.
var errClosed = errors.New("cannot write state: it is closed")

// commit makes one durable transaction of a change, its events, and every record that is newer in
// memory. Then apply changes memory, and the events move from the outbox to the log. The caller
// holds writer. On an error nothing has changed.
//
// When the log cannot be written after the commit, the events are safe in the outbox and the change
// stands. The next commit and the next Audit retry first, and fail if the log still cannot be
// written.
func (s *Store) commit(events []Event, change func(*bbolt.Tx) error, apply func()) error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.log.post(nil); err != nil {
		return err
	}
	lines := make([]line, len(events))
	for i, e := range events {
		lines[i] = e.line(s.opts.Now(), s.tx+uint64(i)+1)
	}
	err := s.transact(func(tx *bbolt.Tx) error { return errors.Join(putOutbox(tx, lines), change(tx)) })
	if err != nil {
		return err
	}
	s.tx += uint64(len(lines))
	s.mu.Lock()
	apply()
	s.mu.Unlock()
	s.setBehind(s.log.post(lines))
	s.stirUp()
	return nil
}

// transact runs one read-write transaction that also holds the dirty records.
func (s *Store) transact(change func(*bbolt.Tx) error) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("cannot write state: %w", err)
	}
	dirty := s.takeDirty()
	for i := range dirty {
		err = errors.Join(err, putRecord(tx, &dirty[i]))
	}
	if err = errors.Join(err, change(tx)); err != nil {
		s.putBack(dirty)
		return errors.Join(fmt.Errorf("cannot write state: %w", err), tx.Rollback())
	}
	id := tx.ID()
	if err := tx.Commit(); err != nil {
		s.putBack(dirty)
		return s.commitFailed(id, fmt.Errorf("cannot write state %s: %w", s.db.Path(), err))
	}
	s.setAside()
	return nil
}

// commitFailed makes memory match the database again. A commit that a full disk refused can be
// retried. After any other failure, above all of fsync(2), the kernel may hold pages for clean that
// never reached the disk. The file may hold a transaction that was reported as failed. Nothing more
// is written until a restart reads the file anew.
func (s *Store) commitFailed(id int, err error) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	inFile := false
	rerr := s.db.View(func(tx *bbolt.Tx) error {
		inFile = tx.ID() >= id
		return nil
	})
	rerr = errors.Join(rerr, s.reload())
	if !full || inFile || rerr != nil {
		s.broken = fmt.Errorf("cannot write state until chatd is started again: an earlier commit failed: %w",
			err)
	}
	return errors.Join(err, rerr)
}

func (s *Store) reload() error {
	x, blocks, owners, err := load(s.db)
	if err != nil {
		return fmt.Errorf("cannot read %s again: %w", s.db.Path(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.dirty {
		was, is := s.index.byUID[uid], x.byUID[uid]
		if was == nil || is == nil {
			continue
		}
		is.UsedAt = was.UsedAt
		if rank(was.Phase) > rank(is.Phase) {
			is.Phase = was.Phase
		}
	}
	s.index, s.blocks, s.owners = x, blocks, owners
	return nil
}

func (s *Store) takeDirty() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	recs := make([]Record, 0, len(s.dirty))
	for uid := range s.dirty {
		if r := s.index.byUID[uid]; r != nil {
			recs = append(recs, r.clone())
		}
	}
	clear(s.dirty)
	return recs
}

func (s *Store) putBack(dirty []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range dirty {
		s.dirty[dirty[i].UID] = true
	}
}

// Flush makes all delayed writes durable: lazy records, the audit log up to its last line, and the
// head of the log in the database.
func (s *Store) Flush() error {
	s.writer.Lock()
	defer s.writer.Unlock()
	return s.flush()
}

// flush syncs the log before it commits its head, so that the head never names a line that a power
// cut took; and removes only synced lines from the outbox.
func (s *Store) flush() error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.log.post(nil); err != nil {
		return err
	}
	head, moved, err := s.log.sync()
	if err != nil {
		return err
	}
	s.mu.RLock()
	idle := len(s.dirty) == 0
	s.mu.RUnlock()
	if idle && !moved {
		return nil
	}
	if err := s.transact(func(tx *bbolt.Tx) error {
		return errors.Join(putHead(tx, head), emptyOutbox(tx, head.Tx))
	}); err != nil {
		return err
	}
	s.log.kept(head)
	return s.rotate()
}

// stirUp flushes about a second after a write was delayed, and again while that fails.
func (s *Store) stirUp() {
	if s.stirred.Swap(true) {
		return
	}
	time.AfterFunc(flushDelay, func() {
		s.writer.Lock()
		s.stirred.Store(false)
		err := s.flush()
		s.writer.Unlock()
		if errors.Is(err, errClosed) {
			return
		}
		s.setBehind(err)
		if err != nil {
			s.stirUp()
		}
	})
}

func (s *Store) setBehind(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = err
}

// Behind returns the error of the last background write, for healthz. The write is retried until it
// succeeds.
func (s *Store) Behind() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.behind
}

func putOutbox(tx *bbolt.Tx, lines []line) (err error) {
	for _, l := range lines {
		err = errors.Join(err, put(tx, outboxBucket, binary.BigEndian.AppendUint64(nil, l.Tx), l))
	}
	return err
}

func emptyOutbox(tx *bbolt.Tx, upTo uint64) error {
	c := tx.Bucket(outboxBucket).Cursor()
	for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) <= upTo; k, _ = c.First() {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}

func self() chat.Caller {
	return chat.Caller{Name: "chatd", UID: uint32(os.Geteuid()), Role: chat.RoleOperator}
}
