package provision

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/admission"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/shares"
	"github.com/chatd/chatd/provision/terminal"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// chats finds chats: their records with the profiles in force, their locks and their sessions. It is
// part of every other part, with what those need in common.
type chats struct {
	opt     Options
	store   *state.Store
	trail   *audit.Trail
	dirs    *dirs
	layers  *layers.Set
	policy  *policy.InForce
	secrets *secrets
	groups  *cgroups
	log     *slog.Logger
	locks   admission.Locks
	awake   sync.Map // of *liveSession, by id
}

// subject is a chat as a verb finds it: its record, and its profile as it was in force then. Whoever
// keeps one over a change, or for long, reads it again.
type subject struct {
	state.Record
	// profile has the egress and limits of the chat itself.
	profile chat.Profile
	home    string
}

// liveSession is one awake chat.
type liveSession struct {
	*session.Session
	terminal *tmux.Terminal
	// endedFor is the reason for which the daemon ended it without a request, nil if it did not.
	endedFor atomic.Pointer[string]
	// ending: chatd has begun to end its processes.
	ending atomic.Bool
	// inside counts the commands that chatd has in it; freezing is held while it is frozen or
	// thawed.
	inside   atomic.Int32
	freezing sync.Mutex
	// log is the log of its terminal's output; stopLog ends the goroutine that writes it.
	log     *terminal.Recording
	stopLog context.CancelFunc
	// adopted: an earlier chatd started it.
	adopted bool
	// behind are the limits that its cgroup does not have as they are recorded.
	behind atomic.Pointer[[]string]
	// meter counts what its limits did; metering is held until that is reported.
	meter    cgroup.HitMeter
	metering sync.Mutex
	// limitsChanged is when a patch changed them last; the chat's lock is held.
	limitsChanged time.Time
}

// reach finds a chat for the caller in ctx. Somebody else's chat is as absent
// as one that never was.
func (k *chats) reach(ctx context.Context, id chat.ID) (subject, error) {
	rec, err := k.get(id)
	if err == nil && !chat.CallerFrom(ctx).MayReach(rec.Owner) {
		if err := k.trail.Write(ctx, rec.Record, "reach", "denied", nil); err != nil {
			return subject{}, err
		}
		return subject{}, chat.NoChat(id)
	}
	return rec, err
}

// lockReached finds a chat for the caller in ctx, and takes its lock.
func (k *chats) lockReached(ctx context.Context, id chat.ID) (c subject, unlock func(), err error) {
	if _, err = k.reach(ctx, id); err != nil {
		return c, nil, err
	}
	return k.lockChat(ctx, id)
}

// lockChat takes a chat's lock, and finds the chat as it is then.
func (k *chats) lockChat(ctx context.Context, id chat.ID) (c subject, unlock func(), err error) {
	if unlock, err = k.locks.Lock(ctx, id); err != nil {
		return c, nil, err
	}
	if c, err = k.get(id); err != nil {
		unlock()
	}
	return c, unlock, err
}

// lockReady is lockReached for an act that only a ready chat bears.
func (k *chats) lockReady(ctx context.Context, id chat.ID, act string) (c subject, unlock func(), err error) {
	if c, unlock, err = k.lockReached(ctx, id); err == nil && c.Phase != chat.Ready {
		unlock()
		err = notReady(c, act)
	}
	return c, unlock, err
}

// tryReady takes the lock of a chat that is ready, unless another caller acts on it.
func (k *chats) tryReady(id chat.ID) (c subject, unlock func(), got bool) {
	unlock, free := k.locks.TryLock(id)
	if !free {
		return c, nil, false
	}
	c, err := k.get(id)
	if err != nil || c.Phase != chat.Ready {
		unlock()
		return c, nil, false
	}
	return c, unlock, true
}

// hasChat reports whether any chat, whoever's, has the id.
func (k *chats) hasChat(id chat.ID) bool {
	_, err := k.store.Get(id)
	return err == nil
}

// subject returns the chat of a record, by the profiles in force.
func (k *chats) subject(rec state.Record) subject {
	return subject{Record: rec, profile: k.policy.Of(rec), home: k.dirs.Home(rec.ID)}
}

// get finds a chat, whoever's.
func (k *chats) get(id chat.ID) (subject, error) {
	rec, err := k.store.Get(id)
	return k.subject(rec), err
}

// rules is the chat as its rules need it.
func (c subject) rules() policy.Chat {
	return policy.Chat{
		ID: c.ID, UID: c.UID, Profile: c.Record.Profile, Agent: c.Agent, Home: c.home,
		Egress: c.EgressChange(),
	}
}

// place is what the chat holds while it is awake.
func (c subject) place() shares.Place {
	return shares.Place{Owner: c.Owner, Memory: c.profile.Limits.MemoryMax}
}

// diskLimit is what the chat may have on disk.
func (c subject) diskLimit() diskquota.Amount {
	return diskquota.Amount{Bytes: c.profile.Limits.DiskMax, Inodes: c.profile.Limits.InodesMax}
}

func (c subject) account() account.User {
	return account.User{Name: c.ID.User(), ID: c.UID, Home: c.home}
}

// way is the chat as package gateway knows it.
func (c subject) way() gateway.Chat {
	return gateway.Chat{ID: c.ID, Owner: c.Owner, UID: c.UID, Allow: c.profile.Egress}
}

// endsSoon reports whether chatd is ending the session, or it ends within a second: the kernel ends
// the other processes of a pid namespace before its first.
func (s *liveSession) endsSoon() bool {
	if s.ending.Load() {
		return true
	}
	select {
	case <-s.Init.Ended():
	case <-time.After(time.Second):
	}
	return !s.Init.Alive()
}

func (k *chats) allSessions() (all []*liveSession) {
	k.awake.Range(func(_, s any) bool {
		all = append(all, s.(*liveSession))
		return true
	})
	return all
}

// sessionsOfChats are the sessions with their chats. A session ends before its chat is forgotten.
func (k *chats) sessionsOfChats() iter.Seq2[*liveSession, subject] {
	return func(yield func(*liveSession, subject) bool) {
		for _, s := range k.allSessions() {
			if c, err := k.get(s.Chat); err == nil && !yield(s, c) {
				return
			}
		}
	}
}

func (k *chats) allChats() (all []policy.Chat) {
	for _, rec := range k.store.All() {
		all = append(all, k.subject(rec).rules())
	}
	return all
}

// lives reports whether there is a session that chatd is not ending.
func (s *liveSession) lives() bool { return s != nil && !s.ending.Load() && s.Init.Alive() }

// someUsers are the accounts of those of the first eight chats that are ready.
func (k *chats) someUsers() (users []account.User) {
	if k.store == nil {
		return nil
	}
	all := k.store.All()
	for _, rec := range all[:min(len(all), 8)] {
		if rec.Phase == chat.Ready {
			users = append(users, k.subject(rec).account())
		}
	}
	return users
}

// touch records that the chat is used now.
func (k *chats) touch(id chat.ID) { k.store.Touch(id, time.Now()) }

// configured refuses to act on a chat whose profile was taken out of the config.
func (k *chats) configured(c subject, act string) error {
	if _, ok := k.opt.Profiles[c.Record.Profile]; ok {
		return nil
	}
	return fmt.Errorf("cannot %s chat %s: its profile %s is not configured any more: %w",
		act, c.ID, c.Record.Profile, chat.ErrWrongPhase)
}

// notReady refuses to act on a chat that is not ready. A chat in creation becomes ready without
// this caller: its creator or reconcile finishes it.
func notReady(rec subject, act string) error {
	if rec.Phase == chat.Creating {
		return fmt.Errorf("cannot %s chat %s: it is still being created; ask again in a moment: %w", act,
			rec.ID, chat.ErrBusy)
	}
	return fmt.Errorf("cannot %s chat %s: it is %s: %w", act, rec.ID, rec.Phase, chat.ErrWrongPhase)
}

// places returns what each chat holds that has a session.
func (k *chats) places() map[chat.ID]shares.Place {
	awake := map[chat.ID]shares.Place{}
	for s, c := range k.sessionsOfChats() {
		awake[s.Chat] = c.place()
	}
	return awake
}

// session is the chat's session, nil while it is asleep.
func (k *chats) session(id chat.ID) *liveSession {
	s, _ := k.awake.Load(id)
	is, _ := s.(*liveSession)
	return is
}
