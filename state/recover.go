package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// openAudit opens the log, makes it match the database after a crash, and writes the lines of the
// outbox.
func (s *Store) openAudit() error {
	path := filepath.Join(s.opts.Dir, auditName)
	var kept head
	var outbox []line
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		if kept, err = getHead(tx); err == nil {
			outbox, err = getOutbox(tx)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", s.db.Path(), err)
	}
	if err := s.checkLogged(kept); err != nil {
		return err
	}
	if s.readOnly {
		return s.readAudit(kept)
	}
	from, err := s.resumeRotation(kept)
	if err != nil {
		return fmt.Errorf("cannot finish a rotation of the audit log: %w", err)
	}
	f, err := openPrivate(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return fmt.Errorf("cannot open audit log: %w", err)
	}
	s.log = &auditLog{file: f, head: from, onDisk: kept}
	if err := syncDir(s.opts.Dir); err != nil {
		return fmt.Errorf("cannot open audit log %s: %w", path, err)
	}
	return s.replay(from, outbox)
}

// replay writes the outbox lines that the file lacks, then an event about damage at the end of the
// file.
func (s *Store) replay(kept head, outbox []line) error {
	end, err := readEnd(s.log.file, kept)
	if err != nil {
		return fmt.Errorf("cannot read the end of audit log %s: %w", s.log.file.Name(), err)
	}
	s.log.head, s.log.torn = end.head, end.torn > 0
	s.tx = end.head.Tx
	for _, l := range outbox {
		s.tx = max(s.tx, l.Tx)
		if !end.seen[l.Tx] {
			s.log.pending = append(s.log.pending, l)
		}
	}
	if end.torn > 0 {
		end.trouble = append(end.trouble,
			"cut off a last line without an end, of "+strconv.FormatInt(end.torn, 10)+" bytes")
	}
	for _, what := range end.trouble {
		e := Event{Action: "audit", Outcome: "failed", Caller: self(),
			Detail: map[string]string{"trouble": what}}
		if err := s.Audit(e); err != nil {
			return err
		}
	}
	s.stirUp()
	return s.log.post(nil)
}

// end describes the file's contents after the head that the database names.
type end struct {
	head    head
	seen    map[uint64]bool // tx numbers of lines that are written
	torn    int64           // bytes of a last line without a newline
	trouble []string
}

// readEnd reads on from the kept head, which a flush made durable. A file without that head was
// tampered with, or lost by the disk. Then the whole file is read, no complete line is removed, and
// the chain continues from the kept head, so that verification always shows the gap.
func readEnd(f *os.File, kept head) (end, error) {
	e := end{head: kept, seen: map[uint64]bool{}}
	ok, err := hasHead(f, kept)
	if err != nil {
		return e, err
	}
	c := chain{seq: kept.Seq, hash: kept.Hash}
	if !ok {
		e.trouble = append(e.trouble,
			fmt.Sprintf("line %d, known to have been written, is not where it was", kept.Seq))
		e.head.Offset = 0
	}
	if err := e.scan(f, &c, ok); err != nil {
		return e, err
	}
	if ok {
		e.head.Seq, e.head.Hash = c.seq, c.hash
	}
	return e, nil
}

func (e *end) scan(f *os.File, c *chain, trusted bool) error {
	for raw, err := range linesOf(io.NewSectionReader(f, e.head.Offset, 1<<62)) {
		if err != nil {
			return err
		}
		if !raw.whole {
			e.torn = raw.size
			break
		}
		e.head.Offset += raw.size
		l, err := c.next(raw)
		if err != nil && trusted && len(e.trouble) == 0 {
			e.trouble = append(e.trouble, fmt.Sprintf("at byte %d: %v", e.head.Offset-raw.size, err))
		}
		e.head.Tx = max(e.head.Tx, l.Tx)
		if l.Tx != 0 {
			e.seen[l.Tx] = true
		}
	}
	return nil
}

// hasHead reports whether the line that ends at the head's offset is the head's.
func hasHead(f *os.File, h head) (bool, error) {
	if h.Offset == 0 {
		return true, nil
	}
	fi, err := f.Stat()
	if err != nil || fi.Size() < h.Offset {
		return false, err
	}
	b := make([]byte, min(h.Offset, maxLine+1))
	if _, err := f.ReadAt(b, h.Offset-int64(len(b))); err != nil {
		return false, err
	}
	if b[len(b)-1] != '\n' {
		return false, nil
	}
	b = b[:len(b)-1]
	return hashLine(b[bytes.LastIndexByte(b, '\n')+1:]) == h.Hash, nil
}

func getHead(tx *bbolt.Tx) (head, error) {
	h := head{Hash: noHash, BaseHash: noHash}
	v := tx.Bucket(metaBucket).Get(headKey)
	if v == nil {
		return h, nil
	}
	if err := json.Unmarshal(v, &h); err != nil {
		return h, fmt.Errorf("cannot read the head of the audit log: %w", err)
	}
	if h.Offset < 0 {
		return h, chat.Invalid("cannot use the head of the audit log: offset %d", h.Offset)
	}
	return h, nil
}

func putHead(tx *bbolt.Tx, h head) error { return put(tx, metaBucket, headKey, h) }

func getOutbox(tx *bbolt.Tx) ([]line, error) {
	var lines []line
	err := each(tx, outboxBucket, "outbox event", func(k []byte, l *line) error {
		if len(k) != 8 || binary.BigEndian.Uint64(k) != l.Tx {
			return chat.Invalid("cannot use the outbox event of tx %d under key %x", l.Tx, k)
		}
		lines = append(lines, *l)
		return nil
	})
	return lines, err
}
