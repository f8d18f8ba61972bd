package shares

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

// Place is what an awake chat holds.
type Place struct {
	Owner string
	// Memory is its memory_max in bytes.
	Memory uint64
}

const (
	// wakeHold is how long one wake may keep the next from being admitted: a chat that makes room
	// for it may end slowly.
	wakeHold = 3 * time.Second
	// roomTimeout is how long the first in the line for a place waits while nobody gets one.
	roomTimeout = 30 * time.Second
	// roomPoll is how often it looks again.
	roomPoll = time.Second
)

// room is the line of wakes for which a full host may soon have a place.
type room struct {
	head   *quota.Limiter // the first in the line, owners in turn
	mu     sync.Mutex
	length int
	served time.Time // when one last left the line with a place
	// wanted is the memory that the first in the line waits for, and taken what those have got
	// that overtook it.
	wanted, taken uint64
}

// Wake admits a chat that wakes, until done is called: it bounds the chats that are awake or
// waking, and their memory_max, in total, and the chats of one owner. Where these are as many as
// may be, it puts the longest idle one to sleep, or refuses. A wake for which a chat of another
// owner may soon be idle waits for that. Wakes are admitted in turn by owner, and in order, but
// that smaller ones may overtake one that waits for memory, up to as much as it waits for. A chat
// wakes once at a time.
func (s *Shares) Wake(ctx context.Context, id chat.ID, p Place) (done func(), err error) {
	if max := s.MaxMemory; max > 0 && p.Memory > max {
		return nil, fmt.Errorf("cannot wake chat %s: its memory_max, %s, is more than "+
			"max_awake_memory, %s, of all chats: %w", id, size(p.Memory), size(max), chat.ErrBusy)
	}
	soon, overtakes := s.rooms.before(p.Memory, s.MaxMemory > 0)
	if !soon {
		soon, err = s.wakeNow(ctx, id, p)
	}
	if overtakes && (soon || err != nil) {
		s.rooms.overtookNobody(p.Memory)
	}
	if soon {
		err = s.awaitRoom(ctx, id, p)
	}
	if err != nil {
		return nil, s.Refused(ctx, "wake", err)
	}
	return func() { s.woken(id) }, nil
}

// Grow admits that an awake chat has p from now on, which done ends to promise; its record says so
// by then. It makes room as Wake does, and does not wait.
func (s *Shares) Grow(ctx context.Context, id chat.ID, p Place) (done func(), err error) {
	if s.MaxMemory == 0 {
		return func() {}, nil
	}
	if _, err := s.place(ctx, id, p); err != nil {
		return nil, s.Refused(ctx, "patch", err)
	}
	return func() { s.woken(id) }, nil
}

// wakeNow admits a chat when its turn comes, or says whether there may be a place for it soon.
func (s *Shares) wakeNow(ctx context.Context, id chat.ID, p Place) (soon bool, err error) {
	leave, err := s.wakes.Enter(ctx, p.Owner, "wake")
	if err != nil {
		return false, gaveUp(err)
	}
	defer leave()
	return s.place(ctx, id, p)
}

// awaitRoom admits a chat once it is the first in the line and has a place. It gives up when the
// line has not moved for roomTimeout, or nothing that keeps the host full may end by itself.
func (s *Shares) awaitRoom(ctx context.Context, id chat.ID, p Place) error {
	since := s.rooms.join()
	served := false
	defer func() { s.rooms.leave(served) }()
	leave, err := s.rooms.head.Enter(ctx, p.Owner, "wake")
	if err != nil {
		return gaveUp(err)
	}
	defer leave()
	s.rooms.lead(p.Memory)
	for {
		soon, err := s.place(ctx, id, p)
		if served = err == nil; !soon || s.rooms.stands(since) {
			return err
		}
		if why := chat.Sleep(ctx, roomPoll); why != nil {
			return gaveUp(why)
		}
	}
}

// gaveUp is the error of a caller who has left before the chat's turn came.
func gaveUp(err error) error {
	return fmt.Errorf("cannot wake another chat: others are waking: %w: %w", err, chat.ErrBusy)
}

// before reports whether a wake has to wait behind others, or overtakes the first of them: if it
// may, for less memory than that waits for.
func (r *room) before(memory uint64, may bool) (waits, overtakes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.length == 0 {
		return false, false
	}
	if !may || memory >= r.wanted || r.taken+memory > r.wanted {
		return true, false
	}
	r.taken += memory
	return false, true
}

// lead is called by the first in the line.
func (r *room) lead(wanted uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted, r.taken = wanted, 0
}

// overtookNobody is called where before was wrong to expect that.
func (r *room) overtookNobody(memory uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= min(r.taken, memory)
}

func (r *room) join() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.length++
	return time.Now()
}

func (r *room) leave(served bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.length--; served {
		r.served = time.Now()
	}
}

// stands reports whether nobody got a place for roomTimeout, as the one sees it who joined then.
func (r *room) stands(since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.served.After(since) {
		since = r.served
	}
	return time.Since(since) > roomTimeout
}

// place counts a chat as waking, after it has put others to sleep if need be. If it cannot, soon
// says whether it may before long.
func (s *Shares) place(ctx context.Context, id chat.ID, p Place) (soon bool, err error) {
	for awake := ""; ; {
		of, err := s.admit(ctx, id, p, awake)
		if err == nil {
			return false, nil
		}
		if awake != "" { // of an owner's share the owner can free some
			return soon && of == "", err
		}
		made, later, words := s.MakeRoom(ctx, of, s.fits(of, id, p))
		if soon = later; !made {
			awake = words
		}
	}
}

// fits returns whether a chat has a place once others sleep: of its owner, whose share one makes
// room in, or of all.
func (s *Shares) fits(of string, id chat.ID, p Place) Fits {
	if of != "" {
		return func([]chat.ID, bool) bool { return true }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	awake, waking := s.Awake(), maps.Clone(s.waking)
	return func(asleep []chat.ID, soon bool) bool {
		all := maps.Clone(awake)
		if !soon {
			maps.Copy(all, waking)
		}
		for _, slept := range append(asleep, id) {
			delete(all, slept)
		}
		return s.full(all, p) == ""
	}
}

// admit counts a chat as waking. If it cannot, it returns the owner whose chats are too many, which
// is empty for all, and an error with the words about what keeps those awake. The owner's share
// comes first: no chat of another makes room for one that is refused then.
func (s *Shares) admit(
	ctx context.Context, id chat.ID, p Place, awake string,
) (of string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.Awake()
	maps.Copy(all, s.waking)
	delete(all, id) // its last session, which has ended, may still be there
	err = s.check(ctx, quota.Awake, p.Owner, byOwner(all)[p.Owner], 1)
	if spent, ok := errors.AsType[*quota.SpentError](err); ok {
		spent.Why = awake
		return p.Owner, err
	}
	if why := s.full(all, p); why != "" {
		return "", fmt.Errorf("cannot wake another chat: %s: put one to sleep (%s): %w",
			why, awake, chat.ErrBusy)
	}
	s.waking[id] = p
	return "", nil
}

// full says which bound of all owners has no room for one more chat; empty is none.
func (s *Shares) full(all map[chat.ID]Place, p Place) string {
	if max := s.MaxAwake; max > 0 && len(all) >= max {
		return fmt.Sprintf("%d chats are awake, of all owners, which is max_awake", len(all))
	}
	if held := memory(all); s.MaxMemory > 0 && held+p.Memory > s.MaxMemory {
		return fmt.Sprintf("%d chats are awake, of all owners, with %s of memory_max, and %s more "+
			"exceeds max_awake_memory, %s", len(all), size(held), size(p.Memory), size(s.MaxMemory))
	}
	return ""
}

func (s *Shares) woken(id chat.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waking, id)
}

// byOwner counts chats by their owners.
func byOwner(chats map[chat.ID]Place) map[string]uint64 {
	n := map[string]uint64{}
	for _, p := range chats {
		n[p.Owner]++
	}
	return n
}

// memory is the memory_max of chats together.
func memory(chats map[chat.ID]Place) (sum uint64) {
	for _, p := range chats {
		sum += p.Memory
	}
	return sum
}

// size is a number of bytes in MiB, as a profile has memory_max.
func size(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }
