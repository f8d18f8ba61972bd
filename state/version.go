package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// Version is the version of the database that this chatd writes. It rises with every change of what
// is stored, also with one more field of a record: records are read and written whole, so a program
// that does not know a field would drop it. TestStoredFields names the fields of each version.
//
//	1  before November 2026; owners' uids (790b765), a record's env (f50086f) and an event's argv
//	   (b664eae) came without a new version
//	2  every owner's uids are counted, and no uid below a floor is given (restore)
//	3  a record has how the chat's egress differs from its profile's
//	4  a record has how its limits differ from those, and what was changed since create
//	5  a record has the archive that it is made of, until it is ready
const Version = 5

// oldest is the oldest version that can be migrated.
const oldest = 1

// migrations turn version oldest+i into the next. Each only adds: a version that is not there yet
// can be read without being changed.
var migrations = [Version - oldest]func(*bbolt.Tx) error{toVersion2, toVersion3, toVersion4,
	toVersion5,
}

// versionOf is the version of a database; 0 if nothing was written to it yet.
func versionOf(tx *bbolt.Tx) (int, error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil || meta.Get(formatKey) == nil {
		return 0, nil
	}
	word := string(meta.Get(formatKey))
	v, err := strconv.Atoi(word)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("its version is %s, want a number: it is damaged: restore it from a backup (chatd restore): %w",
			chat.Quote(word), chat.ErrInvalid)
	}
	return v, nil
}

// checkVersion refuses a database of a later version. It changes nothing.
func checkVersion(tx *bbolt.Tx) error {
	v, err := versionOf(tx)
	if err == nil && v > Version {
		err = fmt.Errorf(
			"its version is %d, and this chatd knows versions %d to %d and would drop what it does not know: "+
				"start the chatd that wrote it, or a later one, or restore a backup that this chatd made (chatd restore): %w",
			v,
			oldest,
			Version,
			chat.ErrUnsupported,
		)
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

// migrate begins a new database, or brings an older one to Version, in the transaction of the
// caller: a crash leaves the old version or the new one. The event of a migration goes to the
// outbox, and from there to the audit log.
func migrate(tx *bbolt.Tx, now time.Time) error {
	if err := checkVersion(tx); err != nil {
		return err
	}
	from, err := versionOf(tx)
	if err != nil || from == Version {
		return err
	}
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	if from > 0 {
		err = stepUp(tx, from, now)
	}
	return errors.Join(err, tx.Bucket(metaBucket).Put(formatKey, []byte(strconv.Itoa(Version))))
}

func stepUp(tx *bbolt.Tx, from int, now time.Time) error {
	for v := from; v < Version; v++ {
		if err := migrations[v-oldest](tx); err != nil {
			return fmt.Errorf("cannot migrate version %d to %d: %w", v, v+1, err)
		}
	}
	last, err := lastTx(tx)
	if err != nil {
		return err
	}
	e := Event{Action: "migrate", Outcome: "done", Caller: self(), Detail: map[string]string{
		"from": strconv.Itoa(from), "to": strconv.Itoa(Version)}}
	return putOutbox(tx, []line{e.line(now, last+1)})
}

// lastTx is the highest number that an event of the outbox ever had.
func lastTx(tx *bbolt.Tx) (uint64, error) {
	h, err := getHead(tx)
	if k, _ := tx.Bucket(outboxBucket).Cursor().Last(); len(k) == 8 {
		h.Tx = max(h.Tx, binary.BigEndian.Uint64(k))
	}
	return h.Tx, err
}

// toVersion3 changes nothing: no chat had an egress of its own.
func toVersion3(*bbolt.Tx) error { return nil }

// toVersion4 changes nothing: no chat had limits of its own.
func toVersion4(*bbolt.Tx) error { return nil }

// toVersion5 changes nothing: no chat was made of an archive.
func toVersion5(*bbolt.Tx) error { return nil }

// toVersion2 counts the uids of owners that were not counted: those of the chats that exist. Which
// other uids an owner had is not stored.
func toVersion2(tx *bbolt.Tx) error {
	x := newIndex(0)
	blocks, err := loadBlocks(tx)
	if err != nil {
		return err
	}
	if err := tx.Bucket(recordBucket).ForEach(func(k, v []byte) error { return x.load(k, v, blocks) }); err != nil {
		return err
	}
	owners, err := countOwners(tx, x)
	for owner, held := range owners {
		err = errors.Join(err, putOwner(tx, owner, held.UIDs))
	}
	return err
}
