package state

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// Version is the version of the database that this chatd writes. It rises with every change of what
// is stored, also with one more field of a record: records are read and written whole, so a program
// that does not know a field would drop it. TestStoredFields names the fields of each version.
const Version = 1

// versionOf is the version of a database; 0 if nothing was written to it yet.
func versionOf(tx *bbolt.Tx) (int, error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil || meta.Get(formatKey) == nil {
		return 0, nil
	}
	word := string(meta.Get(formatKey))
	v, err := strconv.Atoi(word)
	if err != nil || v < 1 {
		return 0, chat.Invalid("its version is %s, want a number: it is damaged: restore it from a backup (specs/0010)",
			chat.Quote(word))
	}
	return v, nil
}

// checkVersion refuses a database of another version. It changes nothing.
func checkVersion(tx *bbolt.Tx) error {
	v, err := versionOf(tx)
	if err == nil && v > 0 && v != Version {
		err = fmt.Errorf("its version is %d, and this chatd knows version %d alone: start the chatd "+
			"that wrote it, or restore a backup that this chatd made (specs/0010): %w",
			v, Version, chat.ErrUnsupported)
	}
	return err
}

// readable refuses a database that a read-only file system keeps from being begun.
func readable(tx *bbolt.Tx) error {
	if v, err := versionOf(tx); v == 0 || err != nil {
		return errors.Join(err, fmt.Errorf("it was never written to: %w", ErrReadOnly))
	}
	return checkVersion(tx)
}

// begin begins a new database, and refuses one of another version.
func begin(tx *bbolt.Tx) error {
	v, err := versionOf(tx)
	if err = errors.Join(err, checkVersion(tx)); err != nil || v == Version {
		return err
	}
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, []byte(strconv.Itoa(Version)))
}
