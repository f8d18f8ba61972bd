package shares

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/state"
)

// Options are what [Shares] go by.
type Options struct {
	// Limits are one owner's part of each share.
	Limits quota.Limits
	// MaxAwake bounds how many chats are awake simultaneously, and MaxMemory the sum of their
	// memory_max in bytes; 0 is not a bound.
	MaxAwake  int
	MaxMemory uint64
	// UIDs are the uids that chats may get.
	UIDs  state.Range
	Store *state.Store
	// Awake returns what each chat holds that has a session.
	Awake func() map[chat.ID]Place
	// RunBytes counts the bytes that each owner's background runs keep or may still print.
	RunBytes func() map[string]uint64
	// MakeRoom puts an idle chat to sleep, of one owner or, if owner is empty, of all, if there is
	// room once several sleep. If it cannot, it says what keeps the awake chats awake, and whether
	// there may be room soon.
	MakeRoom func(ctx context.Context, owner string, fits Fits) (made, soon bool, awake string)
}

// Fits reports whether there is room once those chats sleep, and with soon those that are waking.
type Fits = func(asleep []chat.ID, soon bool) bool

// Shares count what owners hold. The methods may be called from several goroutines; the caller is
// in the context ([chat.WithCaller]).
type Shares struct {
	Options
	creates *quota.Rate // new chats, by owner
	audited *quota.Rate // audited refusals, by owner and share
	wakes   *quota.Limiter
	rooms   room
	mu      sync.Mutex
	uids    *quota.Allowance  // that all owners together are given
	waking  map[chat.ID]Place // chats that are waking
}

// A uid is never given twice. A front that was taken over may name an owner of its own, and an
// operator, for each chat: all together get uidsAtOnce, and then one every uidEvery.
const uidsAtOnce, uidEvery = 20_000, 200 * time.Millisecond

// New returns the shares of a daemon that has just started.
func New(opt Options) *Shares {
	return &Shares{
		Options: opt, waking: map[chat.ID]Place{},
		uids:    quota.NewAllowance(uidsAtOnce, uidEvery, time.Now),
		creates: quota.NewRate(opt.Limits[quota.Creates], time.Now),
		audited: quota.NewRate(1, time.Now),
		wakes:   quota.NewLimiter(1, wakeHold),
		rooms:   room{head: quota.NewLimiter(1, roomTimeout)},
	}
}

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
	err := s.checkUse(ctx, owner)(s.Store.UsedBy(owner))
	if err == nil { // a refused one is not paced: it would take one of the minute
		err = s.pace(ctx, owner)
	}
	if err == nil {
		err = s.takeUID()
	}
	return s.Refused(ctx, "create", err)
}

// Admit is [state.Store.Admit] within the owner's share of chats and uids.
func (s *Shares) Admit(
	ctx context.Context, spec chat.Spec, e state.Event,
) (state.Record, bool, error) {
	rec, created, err := s.Store.Admit(spec, e, s.checkUse(ctx, spec.Owner))
	return rec, created, s.Refused(ctx, "create", err)
}

// Unarchive is [state.Store.Unarchive] within the owner's share of chats and uids.
func (s *Shares) Unarchive(
	ctx context.Context, name chat.ArchiveName, former state.Record, e state.Event,
) (state.Record, error) {
	if err := s.takeUID(); err != nil {
		return state.Record{}, err
	}
	rec, err := s.Store.Unarchive(name, former, e, s.checkUse(ctx, former.Owner))
	return rec, s.Refused(ctx, "unarchive", err)
}

// checkUse checks the owner's chats and uids before a record is made.
func (s *Shares) checkUse(ctx context.Context, owner string) func(state.OwnerUse) error {
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

// takeUID counts a new chat of any owner, or refuses it.
func (s *Shares) takeUID() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uids.Take() {
		return nil
	}
	return fmt.Errorf("cannot create another chat yet: all owners together get %d uids, and then "+
		"one each %v: %w", uidsAtOnce, uidEvery, chat.ErrBusy)
}

// Run returns a check of what the owner's background runs keep.
func (s *Shares) Run(ctx context.Context, owner string) func(used, want uint64) error {
	return func(used, want uint64) error {
		return s.check(ctx, quota.RunBytes, owner, used, want)
	}
}

// Refused audits an error that is a spent share, once a minute for each owner and share.
func (s *Shares) Refused(ctx context.Context, action string, err error) error {
	spent, ok := errors.AsType[*quota.SpentError](err)
	if !ok {
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
