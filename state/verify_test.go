package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
)

// verify reads one log from its beginning to its first broken line.
func verify(r io.Reader) (lines int, c chain, err error) {
	v := newReading()
	lines, err = v.verdict(v.file(r))
	return lines, v.chain, err
}

// VerifyAudit is [CheckAudit] of some files, without a database.
func VerifyAudit(paths ...string) (lines int, err error) {
	v := newReading()
	for _, path := range paths {
		if err = v.path(path); err != nil {
			break
		}
	}
	if lines, err = v.verdict(err); err != nil {
		return lines, fmt.Errorf("cannot verify audit log: %w", err)
	}
	return lines, nil
}

// VerifyAudit is [CheckAudit] of an open store: the log ends with the last line that was written.
func (s *Store) VerifyAudit() (lines int, err error) {
	files, want, err := s.log.snapshot(s.opts.Dir)
	if err == nil {
		lines, err = verifyUpTo(files, want)
	}
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return lines, fmt.Errorf("cannot verify audit log %s: %w", filepath.Join(s.opts.Dir, auditName), err)
	}
	return lines, nil
}

// verifyUpTo reads the files, of which the last ends with the head.
func verifyUpTo(files []*os.File, want head) (int, error) {
	v := newReading()
	for i, f := range files {
		in := io.Reader(f)
		if i == len(files)-1 {
			in = io.LimitReader(f, want.Offset)
		}
		if err := v.file(in); err != nil {
			return v.verdict(fmt.Errorf("%s: %w", f.Name(), err))
		}
	}
	if v.seq != want.Seq || v.hash != want.Hash {
		return v.verdict(fmt.Errorf("it ends with line %d, want line %d as written: %w", v.seq, want.Seq, chat.ErrInvalid))
	}
	return v.verdict(nil)
}
