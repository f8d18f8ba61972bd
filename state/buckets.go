package state

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// The buckets of chatd.db and the keys of meta.
var (
	metaBucket     = []byte("meta")
	recordBucket   = []byte("records")   // uid, 4 bytes big-endian → Record
	blockBucket    = []byte("blocks")    // first uid → block
	ownerBucket    = []byte("owners")    // owner → uids ever given, 8 bytes big-endian
	outboxBucket   = []byte("outbox")    // tx, 8 bytes big-endian → audit line without seq and prev
	scheduleBucket = []byte("schedules") // uid as above and the schedule's id → Schedule

	buckets = [][]byte{metaBucket, recordBucket, blockBucket, outboxBucket, scheduleBucket, ownerBucket}

	formatKey   = []byte("format") // Version, in decimal
	keyPrintKey = []byte("install_key_sha256")
	headKey     = []byte("audit_head")
)

// put stores a value as JSON.
func put(tx *bbolt.Tx, bucket, key []byte, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put(key, b)
}

// each visits every value of a bucket of JSON, by key; what names one in an error.
func each[T any](tx *bbolt.Tx, bucket []byte, what string, visit func(key []byte, value *T) error) error {
	return tx.Bucket(bucket).ForEach(func(k, b []byte) error {
		value := new(T)
		if err := json.Unmarshal(b, value); err != nil {
			return fmt.Errorf("cannot read the %s under key %x: %w", what, k, err)
		}
		return visit(k, value)
	})
}

// view returns what get reads in one transaction.
func view[T any](db *bbolt.DB, get func(*bbolt.Tx) (T, error)) (value T, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		value, err = get(tx)
		return err
	})
	return value, err
}
