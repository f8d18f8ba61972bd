package shares

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/state"
)

// Options are what [Shares] go by.
type Options struct {
	// Limits are one owner's part of each share.
	Limits quota.Limits
	// MaxAwake bounds how many chats are awake simultaneously; 0 is no bound.
	MaxAwake int
	// UIDs are the uids that chats may get.
	UIDs  state.Range
	Store *state.Store
	// Awake returns the owner of each chat that has a session.
	Awake func() map[chat.ID]string
	// RunBytes counts the bytes that each owner's background runs keep or may still print.
	RunBytes func() map[string]uint64
	// MakeRoom puts an idle chat to sleep, of one owner or, if owner is empty, of all. If it
	// cannot, it says what keeps the awake chats awake.
	MakeRoom func(ctx context.Context, owner string) (made bool, awake string)
}

// Shares count what owners hold. The methods may be called from several goroutines; the caller is
// in the context ([chat.WithCaller]).
type Shares struct {
	Options
	creates *quota.Rate // new chats, by owner
	audited *quota.Rate // audited refusals, by owner and share
	wakes   *quota.Limiter
	mu      sync.Mutex
	waking  map[chat.ID]string // chats that are waking, with their owners
}

// New returns the shares of a daemon that has just started.
func New(opt Options) *Shares {
	return &Shares{
		Options: opt, waking: map[chat.ID]string{},
		creates: quota.NewRate(opt.Limits[quota.Creates], time.Now),
		audited: quota.NewRate(1, time.Now),
		wakes:   quota.NewLimiter(1, wakeHold),
	}
}

// wakeHold is how long one wake may keep the next from being admitted: a chat that makes room for
// it may end slowly.
const wakeHold = 3 * time.Second

// check refuses a bridge more of a share than one owner may have.
func (s *Shares) check(
	ctx context.Context, share quota.Share, owner string, used, want uint64,
) error {
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		return nil
	}
	return s.Limits.Check(share, owner, used, want)
}

// Create counts a new chat of the owner, or refuses it. [Shares.Admit] then makes its record.
func (s *Shares) Create(ctx context.Context, owner string) error {
	err := s.checkHeld(ctx, owner)(s.Store.HeldBy(owner))
	if err == nil { // a refused one is not paced: it would take one of the minute
		err = s.pace(ctx, owner)
	}
	return s.Refused(ctx, "create", err)
}

// Admit is [state.Store.Admit] within the owner's share of chats and uids.
func (s *Shares) Admit(
	ctx context.Context, spec chat.Spec, e state.Event,
) (state.Record, bool, error) {
	rec, created, err := s.Store.Admit(spec, e, s.checkHeld(ctx, spec.Owner))
	return rec, created, s.Refused(ctx, "create", err)
}

// checkHeld checks the owner's chats and uids before a record is made.
func (s *Shares) checkHeld(ctx context.Context, owner string) func(state.OwnerUse) error {
	return func(h state.OwnerUse) error {
		return cmp.Or(
			s.check(ctx, quota.Chats, owner, h.Chats, 1),
			s.check(ctx, quota.UIDs, owner, h.UIDs, 1),
		)
	}
}

// pace counts a new chat of the owner, or refuses it after too many in the last minute.
func (s *Shares) pace(ctx context.Context, owner string) error {
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		return nil
	}
	after, ok := s.creates.Take(owner)
	if ok {
		return nil
	}
	limit := s.Limits[quota.Creates]
	return &quota.SpentError{
		Share: quota.Creates, Owner: owner, Used: limit, Limit: limit, After: after,
	}
}

// Wake admits a chat of the owner that wakes, until done is called: it bounds the chats that are
// awake or waking, in total and of one owner. Where these are as many as may be, it puts the
// longest idle one to sleep, or refuses. Wakes are admitted in turn by owner, and in order. A chat
// wakes once at a time.
func (s *Shares) Wake(ctx context.Context, id chat.ID, owner string) (done func(), err error) {
	leave, err := s.wakes.Enter(ctx, owner, "wake")
	if err != nil {
		return nil, fmt.Errorf("cannot wake another chat: others are waking: %w: %w",
			err, chat.ErrBusy)
	}
	defer leave()
	for awake := ""; ; {
		of, err := s.admit(ctx, id, owner, awake)
		if err == nil {
			return func() { s.woken(id) }, nil
		}
		if awake != "" {
			return nil, s.Refused(ctx, "wake", err)
		}
		if made, words := s.MakeRoom(ctx, of); !made {
			awake = words
		}
	}
}

// admit counts a chat as waking. If it cannot, it returns the owner whose chats are too many, which
// is empty for all, and an error with the words about what keeps those awake. The owner's share
// comes first: no chat of another makes room for one that is refused then.
func (s *Shares) admit(
	ctx context.Context, id chat.ID, owner, awake string,
) (of string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.Awake()
	maps.Copy(all, s.waking)
	delete(all, id) // its last session, which has ended, may still be there
	err = s.check(ctx, quota.Awake, owner, byOwner(all)[owner], 1)
	var spent *quota.SpentError
	if errors.As(err, &spent) {
		spent.Why = awake
		return owner, err
	}
	if max := s.MaxAwake; max > 0 && len(all) >= max {
		return "", fmt.Errorf("cannot wake another chat: %d chats are awake, of all owners, "+
			"which is max_awake: put one to sleep (%s): %w", len(all), awake, chat.ErrBusy)
	}
	s.waking[id] = owner
	return "", nil
}

func (s *Shares) woken(id chat.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waking, id)
}

// byOwner counts chats by their owners.
func byOwner(chats map[chat.ID]string) map[string]uint64 {
	n := map[string]uint64{}
	for _, owner := range chats {
		n[owner]++
	}
	return n
}

// Run returns a check of what the owner's background runs keep.
func (s *Shares) Run(ctx context.Context, owner string) func(used, want uint64) error {
	return func(used, want uint64) error {
		return s.check(ctx, quota.RunBytes, owner, used, want)
	}
}

// Refused audits an error that is a spent share, once a minute for each owner and share.
func (s *Shares) Refused(ctx context.Context, action string, err error) error {
	var spent *quota.SpentError
	if !errors.As(err, &spent) {
		return err
	}
	if _, first := s.audited.Take(spent.Owner + " " + string(spent.Share)); !first {
		return err
	}
	detail := map[string]string{
		"owner": spent.Owner, "rule": spent.Share.Key(), "limit": fmt.Sprint(spent.Limit),
	}
	return errors.Join(s.Store.Audit(state.Event{
		Action: action, Outcome: "denied", Caller: chat.CallerFrom(ctx), Detail: detail,
	}), err)
}
