package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
)

// Known is what there is to say which uids of a range were given after a backup.
type Known struct {
	// Next is the lowest uid above every one that is known to have been given.
	Next uint32
	// Whole is whether that are all: the database that a daemon wrote last on this host says so.
	Whole bool
}

// KnownUIDs reads what a restore is about to replace: a database, of which any part may be missing,
// and the audit logs beside it. draft is the state to be restored.
func (r *Restore) KnownUIDs(all Range) (Known, error) {
	k, err := knownOf(r.Draft(), all)
	if err != nil {
		return k, err
	}
	draft := k
	was, err := knownOf(r.dir, all)
	k.Next = max(k.Next, was.Next)
	k.Whole = err == nil && was.Whole && was.Next >= draft.Next && sameKey(r.dir, r.Draft())
	next, err := loggedUIDs(r.dir, all)
	if err != nil {
		return k, err
	}
	return k.With(next), nil
}

// With adds a uid that something on the host has: next is the uid after it. A database that never
// gave that uid is not the last one.
func (k Known) With(next uint32) Known {
	if next > k.Next {
		return Known{Next: next}
	}
	return k
}

// knownOf reads the counters of a database. Next is also right where there is an error.
func knownOf(dir string, all Range) (k Known, err error) {
	path := filepath.Join(dir, dbName)
	k.Next = all.Low
	db, err := openReadOnly(path, time.Second)
	if err != nil {
		return k, err
	}
	s := &Store{db: db}
	err = errors.Join(guarded(path, s.load), db.Close())
	for _, b := range s.blocks {
		if b.Next > b.Low {
			k.Next = max(k.Next, b.Next)
		}
	}
	k.Next = max(k.Next, s.floor)
	k.Whole = err == nil
	return k, err
}

// sameKey reports whether two states derive ids with one key.
func sameKey(a, b string) bool {
	x, err := readKey(filepath.Join(a, keyName))
	y, err2 := readKey(filepath.Join(b, keyName))
	return errors.Join(err, err2) == nil && bytes.Equal(x, y)
}

// loggedUIDs is the lowest uid above those that the audit logs in dir name. It passes over lines
// that are none.
func loggedUIDs(dir string, all Range) (next uint32, err error) {
	names, err := archives(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range append(names, auditName) {
		uid, err := loggedIn(filepath.Join(dir, name), all)
		if err != nil {
			return 0, fmt.Errorf("cannot read audit log %s: %w", name, err)
		}
		next = max(next, uid)
	}
	return next, nil
}

func loggedIn(path string, all Range) (next uint32, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for in := bufio.NewReaderSize(f, 64<<10); ; {
		raw, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return next, nil
		}
		if err != nil {
			return 0, err
		}
		var l line
		if json.Unmarshal(raw.text, &l) == nil && all.Contains(l.UID) && l.UID != all.High {
			next = max(next, l.UID+1)
		}
	}
}

// Floor is the lowest uid that a restored state may give. last is the highest uid that was ever
// given, where the operator knows it, and 0 where not. With neither that nor a whole database of
// this host, half of the range above what is known is left out: more uids than that would have to
// have been given since the backup for one to be given again.
func Floor(k Known, all Range, last uint32) (uint32, error) {
	switch {
	case last != 0 && !all.Contains(last):
		return 0, fmt.Errorf("cannot use uid %d as the last that was given: want one of %s: %w",
			last, all, chat.ErrInvalid)
	case last != 0 && last+1 < k.Next:
		return 0, fmt.Errorf("cannot use uid %d as the last that was given: uid %d was given, as this host's files and logs show: %w",
			last, k.Next-1, chat.ErrInvalid)
	case last != 0:
		return last + 1, nil
	case k.Whole:
		return k.Next, nil
	}
	size := uint64(all.BlockSize())
	from := (uint64(k.Next-all.Low) + size - 1) / size // the first block that is not known to be used
	blocks := (uint64(all.High-all.Low) + size) / size
	left := blocks - min(from, blocks)
	return uint32(min(uint64(all.Low)+(from+(left+1)/2)*size, uint64(all.High))), nil
}
