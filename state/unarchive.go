package state

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/chatd/chatd/chat"
)

// Unarchive makes a record for a chat of an archive: the former one's words under a new uid, in
// phase creating. The id is the one that this install derives; it must be the former one's, or the
// error is [chat.ErrConflict]. A chat of that name is [chat.ErrExists]. Otherwise it is
// [Store.Admit].
func (s *Store) Unarchive(
	name chat.ArchiveName, former Record, by Event, conditions ...func(OwnerUse) error,
) (Record, error) {
	spec := former.spec()
	if err := errors.Join(spec.Validate(), by.check()); err != nil {
		return Record{}, fmt.Errorf("cannot unarchive %s: %w", name, err)
	}
	edit := func(r *Record) error {
		if r.ID != former.ID {
			return fmt.Errorf("its chat would be %s here, not %s: %w", r.ID, former.ID,
				chat.ErrConflict)
		}
		r.Limits, r.Patched, r.CreatedAt = former.Limits, former.Patched, former.CreatedAt
		r.Unarchives = name
		*r = r.clone()
		return nil
	}
	rec, created, err := s.admit(spec, by, edit, conditions...)
	switch {
	case err != nil:
		return rec, fmt.Errorf("cannot unarchive %s: %w", name, err)
	case !created:
		return rec, fmt.Errorf("cannot unarchive %s: its conversation has chat %s, which is %s: %w",
			name, rec.ID, rec.Phase, chat.ErrExists)
	}
	return rec, nil
}

// NewID is the id that a conversation's chat would get, which that of an archive must have.
func (s *Store) NewID(owner, externalID string) (chat.ID, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.freeID(owner, externalID)
}

// spec is the request that would make the record.
func (r *Record) spec() chat.Spec {
	return chat.Spec{
		ExternalID: r.ExternalID, Owner: r.Owner, Profile: r.Profile, Agent: r.Agent, Env: r.Env,
		EgressAdd: r.EgressAdd, EgressRemove: r.EgressRemove, Labels: r.Labels,
	}
}

// Unarchived makes a chat of an archive ready, with its variables and its schedules, in one durable
// commit with the event.
func (s *Store) Unarchived(id chat.ID, env map[string]string, schedules []Schedule, by Event) error {
	return s.act("finish the unarchive of", id, func(r *Record) error {
		if r.Phase != chat.Creating || r.Unarchives == "" {
			return fmt.Errorf("none is under way: %w", chat.ErrWrongPhase)
		}
		after := s.current(r)
		after.Phase, after.Unarchives, after.Env = chat.Ready, "", env
		return s.commitAbout(r, by, func(tx *bbolt.Tx) error {
			errs := []error{putRecord(tx, &after)}
			for _, sched := range schedules[:min(len(schedules), chat.MaxSchedules)] {
				errs = append(errs, putSchedule(tx, r.UID, &sched))
			}
			return errors.Join(errs...)
		}, func() { r.take(&after) })
	})
}
