package state

import (
	"encoding/binary"
	"maps"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// OwnerUse is an owner's part of the shares that are stored.
type OwnerUse struct {
	// Chats counts the owner's records, including chats that are being reaped.
	Chats uint64
	// UIDs counts the uids that the owner's chats ever got: none is returned.
	UIDs uint64
}

// Owners returns the Held of every owner that ever had a chat.
func (s *Store) Owners() map[string]OwnerUse {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.owners)
}

// UsedBy returns the Held of one owner.
func (s *Store) UsedBy(owner string) OwnerUse {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.owners[owner]
}

// addOwned counts a new chat; mu is held.
func (s *Store) addOwned(owner string) {
	h := s.owners[owner]
	s.owners[owner] = OwnerUse{h.Chats + 1, h.UIDs + 1}
}

// removeOwned counts the end of a chat, whose uid stays spent; mu is held.
func (s *Store) removeOwned(owner string) {
	h := s.owners[owner]
	s.owners[owner] = OwnerUse{h.Chats - 1, h.UIDs}
}

// putOwner writes how many uids the owner has had.
func putOwner(tx *bbolt.Tx, owner string, uids uint64) error {
	return tx.Bucket(ownerBucket).Put([]byte(owner), binary.BigEndian.AppendUint64(nil, uids))
}

// countOwners counts chats by the records, and reads the uids.
func countOwners(tx *bbolt.Tx, x *index) (map[string]OwnerUse, error) {
	owners := map[string]OwnerUse{}
	for _, r := range x.order {
		h := owners[r.Owner]
		owners[r.Owner] = OwnerUse{h.Chats + 1, h.UIDs + 1}
	}
	err := tx.Bucket(ownerBucket).ForEach(func(k, v []byte) error {
		if len(v) != 8 {
			return chat.Invalid("cannot read the uids of owner %s: %d bytes, want 8", chat.Quote(string(k)),
				len(v))
		}
		h := owners[string(k)]
		h.UIDs = max(h.UIDs, binary.BigEndian.Uint64(v))
		owners[string(k)] = h
		return nil
	})
	return owners, err
}
