package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// A restored database knows no uid that was given after its backup. The floor keeps those from
// being given again: no uid below it is, whatever the blocks say.

func loadFloor(tx *bbolt.Tx) (uint32, error) {
	v := tx.Bucket(metaBucket).Get(floorKey)
	if v == nil {
		return 0, nil
	}
	if len(v) != 4 {
		return 0, fmt.Errorf("cannot read the lowest uid to give: %d bytes, want 4: %w", len(v),
			chat.ErrInvalid)
	}
	return binary.BigEndian.Uint32(v), nil
}

// SkipUIDs gives no uid below floor any more, and gives each profile a block that it can go on
// with. It is durable on return, in one commit with the event. [chat.ErrBusy] means that the range
// has no uids left above floor; the state then stays as it was, but for the event of a block.
func (s *Store) SkipUIDs(floor uint32, by Event) error {
	had := map[string]bool{}
	for _, profile := range s.Profiles() {
		_, left := s.profileBlocks(profile)
		had[profile] = left > 0
	}
	if err := errors.Join(s.raiseFloor(floor, by), s.Room()); err != nil {
		return fmt.Errorf("cannot leave out the uids below %d: %w", floor, err)
	}
	for _, profile := range s.Profiles() {
		if _, _, err := s.EnsureBlock(profile); err != nil && had[profile] {
			return fmt.Errorf("cannot leave out the uids below %d: %w", floor, err)
		}
	}
	return nil
}

func (s *Store) raiseFloor(floor uint32, by Event) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := by.check(); err != nil {
		return err
	}
	floor = max(floor, s.floor)
	var after []block
	for _, b := range s.blocks {
		raised := *b
		raised.Next = max(b.Next, min(floor, b.High+1))
		after = append(after, raised)
	}
	put := func(tx *bbolt.Tx) error {
		err := tx.Bucket(metaBucket).Put(floorKey, binary.BigEndian.AppendUint32(nil, floor))
		for _, b := range after {
			err = errors.Join(err, putBlock(tx, b))
		}
		return err
	}
	return s.commit([]Event{by}, put, func() {
		s.floor = floor
		for _, b := range after {
			s.take(b)
		}
	})
}
