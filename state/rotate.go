package state

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"go.etcd.io/bbolt"
)

// newName is the next log's name while it is prepared.
const newName = auditName + ".new"

// maxRemoved bounds how many old logs one rotation removes, so that one line can name them all.
const maxRemoved = 16

var archiveForm = regexp.MustCompile(`^audit-[0-9]{20}\.jsonl$`)

// archiveName is the name of the full log that begins with line first. Archives sort by name in
// order.
func archiveName(first uint64) string { return fmt.Sprintf("audit-%020d.jsonl", first) }

// archives are the full logs in dir, the oldest first.
func archives(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries { // ReadDir sorts
		if archiveForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// rotateStep is called between the steps of a rotation; tests end the process there.
var rotateStep = func(string) {}

// rotate begins a new log when the open one is full. The caller holds writer. Its
// steps, after each of which a process may end:
//
//  1. The full log is synced, and the database says how it ends.
//  2. The next log is written aside and synced. Its first line, a "rotate", chains
//     to the last of the full one, and names what step 5 removes.
//  3. The full log takes its name as an archive.
//  4. The next log takes the name audit.jsonl, and the database says how that ends.
//  5. Archives beyond Options.AuditKeep go, the oldest first.
//
// Open undoes 2 and 3 if 4 was not reached, and finishes 4 if it was begun
// ([Store.resumeRotation]). The next rotation repeats 5.
func (s *Store) rotate() error {
	a := s.log
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.opts.AuditMax <= 0 || a.head.Offset < s.opts.AuditMax {
		return nil
	}
	if err := s.syncLog(); err != nil {
		return err
	}
	surplus, err := s.surplus()
	if err != nil {
		return fmt.Errorf("cannot rotate the audit log: %w", err)
	}
	next, err := s.writeNext(surplus)
	if err == nil {
		err = s.swapLogs(archiveName(a.head.BaseSeq + 1))
	}
	if err != nil {
		return fmt.Errorf("cannot rotate the audit log: %w", errors.Join(err, next.discard()))
	}
	old, length := a.file, a.head.Offset
	a.file, a.head, a.room = next.file, next.head, reserve{}
	// From here on the new file is the log, even if the rename is not on the disk yet.
	rotateStep("swapped")
	if err := errors.Join(old.Truncate(length), old.Close(),
		syncDir(s.opts.Dir)); err != nil { // its reserved blocks are no longer needed
		return fmt.Errorf("cannot rotate the audit log: %w", err)
	}
	if err := s.keepHead(); err != nil {
		return err
	}
	rotateStep("kept")
	return s.removeArchives(surplus)
}

// syncLog makes the open log durable to its end and records this in the database, so that no line of
// the outbox can belong to it any more. The caller holds log.mu.
func (s *Store) syncLog() error {
	if err := errors.Join(s.log.drainLocked(), s.log.mend()); err != nil {
		return err
	}
	if err := s.log.file.Sync(); err != nil {
		return fmt.Errorf("cannot sync audit log: %w", err)
	}
	return s.keepHead()
}

// keepHead writes the head, of lines that are synced, to the database. The caller
// holds log.mu.
func (s *Store) keepHead() error {
	h := s.log.head
	if err := s.transact(func(tx *bbolt.Tx) error {
		return errors.Join(putHead(tx, h), emptyOutbox(tx, h.Tx))
	}); err != nil {
		return err
	}
	s.log.onDisk = h
	return nil
}

// nextLog is the next log before it is renamed to audit.jsonl.
type nextLog struct {
	file *os.File
	head head
}

// discard closes and removes it; a nextLog without a file is ignored.
func (n nextLog) discard() error {
	if n.file == nil {
		return nil
	}
	return errors.Join(n.file.Close(), removeIfThere(n.file.Name()))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeNext creates the next log with its first line.
func (s *Store) writeNext(surplus []archive) (next nextLog, err error) {
	was := s.log.head
	detail := map[string]string{"former": archiveName(was.BaseSeq + 1)}
	for _, a := range surplus {
		detail[removedKey(a.name)] = a.last.String()
	}
	l := Event{Action: "rotate", Outcome: "done", Caller: self(), Detail: detail}.line(s.opts.Now(), 0)
	l.Seq, l.Prev = was.Seq+1, was.Hash
	b, err := l.encode()
	if err != nil {
		return next, err
	}
	path := filepath.Join(s.opts.Dir, newName)
	if err := removeIfThere(path); err != nil {
		return next, err
	}
	next.file, err = openPrivate(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND)
	if err != nil {
		return next, err
	}
	next.head = was.next()
	next.head.Seq, next.head.Hash, next.head.Offset = l.Seq, hashLine(b), int64(len(b))+1
	_, err = next.file.Write(append(b, '\n'))
	return next, errors.Join(err, next.file.Sync())
}

// next is the head of an empty log that follows h's log.
func (h head) next() head {
	return head{Seq: h.Seq, Hash: h.Hash, Tx: h.Tx, BaseSeq: h.Seq, BaseHash: h.Hash}
}

// swapLogs renames both logs, and syncs the directory in between: if the disk kept only the second
// rename, the full log would be lost.
func (s *Store) swapLogs(name string) error {
	dir := s.opts.Dir
	log, full, next := filepath.Join(dir, auditName), filepath.Join(dir, name), filepath.Join(dir, newName)
	if _, err := os.Lstat(full); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s is there already", full), err)
	}
	if err := checkSame(s.log.file, log); err != nil {
		return err
	}
	rotateStep("written")
	if err := os.Rename(log, full); err != nil {
		return err
	}
	rotateStep("archived")
	err := syncDir(dir)
	if err == nil {
		err = os.Rename(next, log)
	}
	if err != nil {
		return errors.Join(err, os.Rename(full, log))
	}
	rotateStep("renamed")
	return nil
}

// archive is a full log and its last line.
type archive struct {
	name string
	last chain
}

// String formats the end of a removed log for the line of a rotation.
func (c chain) String() string { return fmt.Sprintf("%d %s", c.seq, c.hash) }

func removedKey(name string) string { return "removed " + name }

// surplus are the archives over the limit once the open log is an archive too. The end of each is
// read from the first line of the next.
func (s *Store) surplus() ([]archive, error) {
	if s.opts.AuditKeep <= 0 {
		return nil, nil
	}
	names, err := archives(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	var out []archive
	for i := range min(len(names)+1-s.opts.AuditKeep, maxRemoved) {
		a := archive{names[i], chain{s.log.head.BaseSeq, s.log.head.BaseHash}}
		if i+1 < len(names) {
			if a.last, err = baseOf(filepath.Join(s.opts.Dir, names[i+1])); err != nil {
				return nil, err
			}
		}
		out = append(out, a)
	}
	return out, nil
}

// baseOf reads, from the first line of a log, the seq and hash of the line before.
func baseOf(path string) (chain, error) {
	f, err := os.Open(path)
	if err != nil {
		return chain{}, err
	}
	raw, err := readLine(bufio.NewReader(f))
	if err = errors.Join(err, f.Close()); err != nil {
		return chain{}, fmt.Errorf("cannot read the first line of %s: %w", path, err)
	}
	l, err := parseLine[line](raw)
	if err != nil || l.Seq == 0 {
		return chain{}, errors.Join(fmt.Errorf("cannot use the first line of %s", path), err)
	}
	return chain{l.Seq - 1, l.Prev}, nil
}

// removeArchives removes the archives that the log records as removed.
func (s *Store) removeArchives(list []archive) error {
	for _, a := range list {
		if err := removeIfThere(filepath.Join(s.opts.Dir, a.name)); err != nil {
			return fmt.Errorf("cannot remove an old audit log: %w", err)
		}
		rotateStep("removed")
	}
	return nil
}

// resumeRotation finishes or undoes a rotation that the last process did not complete, and returns
// the head to continue from. kept is the database's head of the full log.
func (s *Store) resumeRotation(kept head) (head, error) {
	dir := s.opts.Dir
	log, full := filepath.Join(dir, auditName), filepath.Join(dir, archiveName(kept.BaseSeq+1))
	if err := removeIfThere(filepath.Join(dir, newName)); err != nil {
		return kept, err
	}
	if ok, err := archiveHasHead(full, kept); err != nil || !ok {
		return kept, err
	}
	_, err := os.Lstat(log)
	if errors.Is(err, fs.ErrNotExist) { // step 4 was not reached
		return kept, errors.Join(os.Rename(full, log), syncDir(dir))
	}
	if err != nil {
		return kept, err
	}
	base, err := baseOf(log)
	if err != nil || base != (chain{kept.Seq, kept.Hash}) {
		return kept, nil // replay finds and reports it
	}
	return kept.next(), nil
}

// archiveHasHead reports whether path exists and has the head's line at its offset.
func archiveHasHead(path string, kept head) (bool, error) {
	f, err := openPrivate(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) || kept.Offset == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ok, err := hasHead(f, kept)
	return ok, errors.Join(err, f.Close())
}
