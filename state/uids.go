package state

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// lowWater is the number of free uids below which a profile gets another block, so that the block's
// firewall rule exists well before it is needed.
const lowWater = 1024

// Range is a range of uids, both ends included.
type Range struct {
	Low  uint32 `json:"low"`
	High uint32 `json:"high"`
}

// Contains reports whether uid lies in the range.
func (r Range) Contains(uid uint32) bool { return r.Low <= uid && uid <= r.High }

// String is "low-high", as iptables-extensions(8) writes owner ranges.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.Low, r.High) }

// BlockSize is how many uids a block of the range has in chatd: 65,536, and in a small range, as in
// tests, a sixteenth.
func (r Range) BlockSize() uint32 { return min(DefaultBlockSize, max(16, (r.High-r.Low+1)/16)) }

func (r Range) meets(o Range) bool { return r.Low <= o.High && o.Low <= r.High }

// block is a range of uids that one profile owns, and its counter.
type block struct {
	Profile string `json:"profile"`
	Range
	// Next is the next uid to give; beyond High the block is full.
	Next uint32 `json:"next"`
}

func (b *block) left() uint32 { return b.High + 1 - b.Next }

func blockOf(blocks []*block, uid uint32) *block {
	for _, b := range blocks {
		if b.Contains(uid) {
			return b
		}
	}
	return nil
}

func loadBlocks(tx *bbolt.Tx) ([]*block, error) {
	var blocks []*block
	err := each(tx, blockBucket, "uid block", func(k []byte, b *block) error {
		if string(k) != string(uidKey(b.Low)) || b.Next < b.Low || b.Next > b.High+1 {
			return chat.Invalid("cannot use the uid block %s with next %d under key %x", b.Range, b.Next, k)
		}
		blocks = append(blocks, b)
		return nil
	})
	return blocks, err
}

func putBlock(tx *bbolt.Tx, b block) error { return put(tx, blockBucket, uidKey(b.Low), b) }

// uidKey encodes uid so that keys sort by number.
func uidKey(uid uint32) []byte { return binary.BigEndian.AppendUint32(nil, uid) }

// Blocks returns for each profile the uid ranges that it owns, lowest first.
func (s *Store) Blocks() map[string][]Range {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m := map[string][]Range{}
	for _, b := range s.blocks {
		m[b.Profile] = append(m[b.Profile], b.Range)
	}
	return m
}

// BlockProfile is the profile whose block the uid is of: that with which its chat was created.
func (s *Store) BlockProfile(uid uint32) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b := blockOf(s.blocks, uid); b != nil {
		return b.Profile
	}
	return ""
}

// profileBlocks returns the profile's ranges and how many uids they have left.
func (s *Store) profileBlocks(profile string) (ranges []Range, left uint32) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, b := range s.blocks {
		if b.Profile == profile {
			ranges = append(ranges, b.Range)
			left += b.left()
		}
	}
	return ranges, left
}

// EnsureBlock gives the profile its first uid block, and a further one when fewer than 1024 uids
// are left in those it has (a quarter of a block, where blocks are smaller than 4096). It returns
// the profile's blocks, and whether one was added. The caller then installs its egress rules before
// the next [Store.Admit], which takes uids from these blocks only. Durable on return;
// [chat.ErrBusy] when the range is used up and the profile has nothing left.
func (s *Store) EnsureBlock(profile string) (blocks []Range, added bool, err error) {
	if err := chat.CheckName("profile", profile); err != nil {
		return nil, false, err
	}
	if blocks, left := s.profileBlocks(profile); left >= s.lowWater() {
		return blocks, false, nil
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	blocks, left := s.profileBlocks(profile)
	if left >= s.lowWater() {
		return blocks, false, nil
	}
	r, ok := s.freeBlock()
	switch {
	case !ok && left > 0:
		return blocks, false, nil
	case !ok:
		err = fmt.Errorf("the range %s is used up: %w", s.opts.UIDs, chat.ErrBusy)
	default:
		err = s.addBlock(block{Profile: profile, Range: r, Next: r.Low})
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot give profile %s a uid block: %w", profile, err)
	}
	blocks, _ = s.profileBlocks(profile)
	return blocks, true, nil
}

func (s *Store) lowWater() uint32 { return max(1, min(lowWater, s.opts.BlockSize/4)) }

func (s *Store) addBlock(b block) error {
	e := Event{Action: "block", Outcome: "done", Caller: self(),
		Detail: map[string]string{"profile": b.Profile, "uids": b.String()}}
	put := func(tx *bbolt.Tx) error { return putBlock(tx, b) }
	return s.commit([]Event{e}, put, func() {
		s.blocks = append(s.blocks, &b)
		slices.SortFunc(s.blocks, func(a, b *block) int { return int(a.Low) - int(b.Low) })
	})
}

// freeBlock finds the lowest aligned range that overlaps no existing block, of
// whatever size. It excludes the last two uids of the range: that of sockets to DNS servers and that
// of probes must not fall under a profile's rules.
func (s *Store) freeBlock() (Range, bool) {
	all := Range{Low: s.opts.UIDs.Low, High: s.opts.UIDs.High - 1}
	for low := uint64(all.Low); low < uint64(all.High); low += uint64(s.opts.BlockSize) {
		r := Range{Low: uint32(low), High: uint32(min(low+uint64(s.opts.BlockSize)-1, uint64(all.High)-1))}
		if !slices.ContainsFunc(s.blocks, func(b *block) bool { return b.meets(r) }) {
			return r, true
		}
	}
	return Range{}, false
}

// nextUID returns the profile's block after one more uid was taken from it, and
// that uid. Nothing is taken before the block is written.
func (s *Store) nextUID(profile string) (block, uint32, error) {
	for _, b := range s.blocks {
		if b.Profile == profile && b.left() > 0 {
			after := *b
			after.Next++
			return after, b.Next, nil
		}
	}
	return block{}, 0, fmt.Errorf("cannot take a uid for profile %s: its blocks are full, EnsureBlock gives more: %w", chat.Quote(profile), chat.ErrBusy)
}

// take replaces the block in memory by the written one.
func (s *Store) take(after block) {
	if b := blockOf(s.blocks, after.Low); b != nil {
		b.Next = after.Next
	}
}

// Spent reports whether uid was given and its chat is gone: a tombstone. It
// will never be given again.
func (s *Store) Spent(uid uint32) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return isGiven(s.blocks, uid) && s.index.byUID[uid] == nil
}

// Given counts the uids that were ever given.
func (s *Store) Given() (given int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, b := range s.blocks {
		given += int(b.Next - b.Low)
	}
	return given
}

// Profiles lists the profiles that own blocks, sorted: they need rules even if the config no longer
// names them.
func (s *Store) Profiles() []string { return slices.Sorted(maps.Keys(s.Blocks())) }
