package state

import (
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

func putRecord(tx *bbolt.Tx, r *Record) error {
	tx.Bucket(recordBucket).FillPercent = 0.9 // keys only ever grow
	return put(tx, recordBucket, uidKey(r.UID), r)
}

// Admit returns the record of (owner, external id), and makes it if there is none: a derived id,
// the next uid of the profile's blocks, phase creating. Of simultaneous equal calls exactly one
// gets created. Record, uid counter and the event by are one durable commit; if it fails, nothing
// has changed.
//
// An existing record is returned unchanged, whatever else the spec says, also while it is being
// reaped. An empty owner means the caller of by. Errors: [chat.ErrInvalid] for the spec,
// [chat.ErrBusy] when the profile has no uid left (see [Store.EnsureBlock]), and the error of a
// condition. Each is called, before a record is made, with what the owner holds.
func (s *Store) Admit(
	spec chat.Spec, by Event, conditions ...func(OwnerUse) error,
) (rec Record, created bool, err error) {
	spec = spec.WithDefaults(by.Caller.Name)
	if err := errors.Join(spec.Validate(), chat.CheckName("owner", spec.Owner), by.check()); err != nil {
		return Record{}, false, err
	}
	return s.admit(spec, by, func(*Record) error { return nil }, conditions...)
}

// admit finds a checked spec's record, or makes one, which edit may change before it is stored.
func (s *Store) admit(
	spec chat.Spec, by Event, edit func(*Record) error, conditions ...func(OwnerUse) error,
) (rec Record, created bool, err error) {
	if rec, ok := s.lookup(name{spec.Owner, spec.ExternalID}); ok {
		return rec, false, nil
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	if rec, ok := s.lookup(name{spec.Owner, spec.ExternalID}); ok {
		return rec, false, nil
	}
	held := s.UsedBy(spec.Owner)
	for _, allows := range conditions {
		if err := allows(held); err != nil {
			return Record{}, false, err
		}
	}
	r, after, err := s.draft(spec)
	if err == nil {
		err = edit(r)
	}
	if err = errors.Join(err, s.Room()); err != nil {
		return Record{}, false, err
	}
	put := func(tx *bbolt.Tx) error {
		return errors.Join(putRecord(tx, r), putBlock(tx, after), putOwner(tx, r.Owner, held.UIDs+1))
	}
	err = s.commit([]Event{by.about(r)}, put, func() {
		s.index.add(r)
		s.take(after)
		s.addOwned(r.Owner)
	})
	if err != nil {
		return Record{}, false, fmt.Errorf("cannot create a chat for %s: %w",
			chat.Quote(spec.ExternalID), err)
	}
	return r.clone(), true, nil
}

// draft returns the record of a new chat, and its uid block with the counter advanced.
func (s *Store) draft(spec chat.Spec) (*Record, block, error) {
	id, err := s.freeID(spec.Owner, spec.ExternalID)
	if err != nil {
		return nil, block{}, err
	}
	after, uid, err := s.nextUID(spec.Profile)
	if err != nil {
		return nil, block{}, err
	}
	now := s.opts.Now().UTC().Round(0)
	r := &Record{ID: id, UID: uid, ExternalID: spec.ExternalID, Owner: spec.Owner, Agent: spec.Agent,
		Profile: spec.Profile, Env: spec.Env, Labels: spec.Labels, EgressAdd: spec.EgressAdd,
		EgressRemove: spec.EgressRemove, Phase: chat.Creating, CreatedAt: now, UsedAt: now}
	c := r.clone()
	return &c, after, nil
}

// freeID takes the first window of the derived bits that no other chat has.
func (s *Store) freeID(owner, externalID string) (chat.ID, error) {
	for window := 0; ; window++ {
		id, err := chat.DeriveID(s.key, owner, externalID, window)
		if err != nil {
			return "", err
		}
		if s.index.byID[id] == nil {
			return id, nil
		}
	}
}

func (s *Store) lookup(n name) (Record, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.index.byName[n]; r != nil {
		return r.clone(), true
	}
	return Record{}, false
}

func (s *Store) current(r *Record) Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return r.clone()
}

// Get returns the record of a chat, or [chat.ErrNotFound].
func (s *Store) Get(id chat.ID) (Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.index.byID[id]; r != nil {
		return r.clone(), nil
	}
	return Record{}, chat.NoChat(id)
}

// GetUID returns the record of the chat that has uid, or [chat.ErrNotFound].
func (s *Store) GetUID(uid uint32) (Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.index.byUID[uid]; r != nil {
		return r.clone(), nil
	}
	return Record{}, fmt.Errorf("cannot find a chat with uid %d: %w", uid, chat.ErrNotFound)
}

// Find returns the record of an owner's external id, or [chat.ErrNotFound].
func (s *Store) Find(owner, externalID string) (Record, error) {
	if r, ok := s.lookup(name{owner, externalID}); ok {
		return r, nil
	}
	return Record{}, fmt.Errorf("cannot find a chat of %s for %s: %w", chat.Quote(owner),
		chat.Quote(externalID), chat.ErrNotFound)
}

// SetPhase advances a chat: creating, ready, reaping, never back ([chat.ErrWrongPhase]). Reaping is
// durable on return, together with the event; other phases with the next commit or within about a
// second. Setting the current phase only records the event.
func (s *Store) SetPhase(id chat.ID, phase chat.Phase, by Event) error {
	return s.change("set the phase of", id, by, phase == chat.Reaping, func(r *Record) error {
		if rank(phase) < rank(r.Phase) || rank(phase) == 0 {
			return fmt.Errorf("it is %s, which %s cannot follow: %w", r.Phase, chat.Quote(string(phase)),
				chat.ErrWrongPhase)
		}
		r.Phase = phase
		return nil
	})
}

func rank(p chat.Phase) int {
	return map[chat.Phase]int{chat.Creating: 1, chat.Ready: 2, chat.Reaping: 3}[p]
}

// SetAccount records which backend makes the chat's account, so that the same one removes it.
// Durable on return: call it before the account is made.
func (s *Store) SetAccount(id chat.ID, backend string, by Event) error {
	return s.change("record the account of", id, by, true, func(r *Record) error {
		r.Account = backend
		return nil
	})
}

// Patch changes a chat that is not being reaped, all of the patch or nothing, durable on return and
// in one commit with the event. Simultaneous patches are serialized.
func (s *Store) Patch(id chat.ID, p chat.Patch, by Event) error {
	if err := s.Room(); err != nil {
		return fmt.Errorf("cannot change chat %s: %w", id, err)
	}
	return s.change("change", id, by, true, func(r *Record) error {
		if err := notReaping(r); err != nil {
			return err
		}
		return r.Patch(p)
	})
}

// change edits one record and writes the event: in one commit when durable,
// else the event to the log and the record to memory.
func (s *Store) change(verb string, id chat.ID, by Event, durable bool, edit func(*Record) error) error {
	return s.act(verb, id, func(r *Record) error {
		after := s.current(r)
		if err := errors.Join(by.check(), edit(&after)); err != nil {
			return err
		}
		return s.keep(r, &after, by.about(r), durable)
	})
}

// act does something to a chat, whose error names both. do is called with writer held.
func (s *Store) act(verb string, id chat.ID, do func(*Record) error) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	r := s.index.byID[id]
	if r == nil {
		return fmt.Errorf("cannot %s chat %s: %w", verb, chat.Quote(string(id)), chat.ErrNotFound)
	}
	if err := do(r); err != nil {
		return fmt.Errorf("cannot %s chat %s: %w", verb, id, err)
	}
	return nil
}

// commitAbout is commit with one event, about a chat.
func (s *Store) commitAbout(r *Record, by Event, put func(*bbolt.Tx) error, apply func()) error {
	if err := by.check(); err != nil {
		return err
	}
	return s.commit([]Event{by.about(r)}, put, apply)
}

func notReaping(r *Record) error {
	if r.Phase == chat.Reaping {
		return fmt.Errorf("it is being reaped: %w", chat.ErrWrongPhase)
	}
	return nil
}

func (s *Store) keep(r, after *Record, by Event, durable bool) error {
	assign := func() { r.take(after) }
	if durable {
		put := func(tx *bbolt.Tx) error {
			now := s.current(r) // keeps a Touch that came in between
			now.take(after)
			return putRecord(tx, &now)
		}
		return s.commit([]Event{by}, put, assign)
	}
	if err := s.Audit(by); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	assign()
	s.dirty[r.UID] = true
	s.stirUp()
	return nil
}

// Forget removes the record and the schedules of a chat that has left no trace on the host, durable
// on return and in one commit with the event. Its uid is spent from then on. A ready chat cannot be
// forgotten ([chat.ErrWrongPhase]): it would stay on the host without a record.
func (s *Store) Forget(id chat.ID, by Event) error {
	return s.act("forget", id, func(r *Record) error {
		if r.Phase == chat.Ready {
			return fmt.Errorf("it is ready, not reaping: %w", chat.ErrWrongPhase)
		}
		return s.commitAbout(r, by, func(tx *bbolt.Tx) error {
			return errors.Join(tx.Bucket(recordBucket).Delete(uidKey(r.UID)), forgetSchedules(tx, r.UID))
		}, func() {
			s.index.remove(r)
			s.removeOwned(r.Owner)
		})
	})
}
