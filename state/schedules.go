package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// Schedule is the stored state of a schedule: the API's fields, its creator, and the last of its
// times that was taken. Schedules are read from the database on demand, and take no memory.
type Schedule struct {
	chat.Schedule
	By    chat.Caller `json:"by"`
	Taken time.Time   `json:"taken,omitzero"`
	// Due is the time that the run of Taken was for.
	Due time.Time `json:"due,omitzero"`
}

func scheduleKey(uid uint32, id string) []byte { return append(uidKey(uid), id...) }

// AddSchedule stores a new schedule of a chat, durable on return and in one commit with the event.
// At most [chat.MaxSchedules] are kept; beyond that the oldest that is never due again is replaced,
// and without one AddSchedule returns [chat.ErrBusy].
func (s *Store) AddSchedule(id chat.ID, sched Schedule, by Event) error {
	return s.act("add a schedule to", id, func(r *Record) error {
		gives, err := s.givesWay(r.UID)
		if err = errors.Join(notReaping(r), err, s.Room()); err != nil {
			return err
		}
		return s.commitAbout(r, by, func(tx *bbolt.Tx) error {
			return errors.Join(tx.Bucket(scheduleBucket).Delete(gives), putSchedule(tx, r.UID, &sched))
		}, func() {})
	})
}

// givesWay is the key of the schedule that a new one replaces; a key without a schedule if there is
// room.
func (s *Store) givesWay(uid uint32) ([]byte, error) {
	old, err := s.schedulesOf(uid)
	if err != nil || len(old) < chat.MaxSchedules {
		return scheduleKey(uid, ""), err
	}
	i := slices.IndexFunc(old, func(o Schedule) bool { return o.Next == nil && o.RunningSince == nil })
	if i < 0 {
		return nil, fmt.Errorf("it has %d, which is the most: remove one: %w", len(old), chat.ErrBusy)
	}
	return scheduleKey(uid, old[i].ID), nil
}

// RemoveSchedule removes a schedule, durable on return and in one commit with the event;
// [chat.ErrNotFound] if there is none.
func (s *Store) RemoveSchedule(id chat.ID, schedule string, by Event) error {
	return s.act("remove a schedule of", id, func(r *Record) error {
		_, err := s.Schedule(id, schedule)
		if err = errors.Join(notReaping(r), err); err != nil {
			return err
		}
		return s.commitAbout(r, by, func(tx *bbolt.Tx) error {
			return tx.Bucket(scheduleBucket).Delete(scheduleKey(r.UID, schedule))
		}, func() {})
	})
}

// ChangeSchedule edits a schedule, durable on return. Its runs are audited, the change is not.
// [chat.ErrNotFound] means that the chat or the schedule is gone.
func (s *Store) ChangeSchedule(
	id chat.ID, schedule string, edit func(*Schedule),
) (after Schedule, err error) {
	err = s.act("change a schedule of", id, func(r *Record) error {
		after, err = s.Schedule(id, schedule)
		if err = errors.Join(notReaping(r), err); err != nil {
			return err
		}
		edit(&after)
		return s.commit(nil, func(tx *bbolt.Tx) error { return putSchedule(tx, r.UID, &after) }, func() {})
	})
	return after, err
}

// Schedules are those of a chat, in the order in which they were made.
func (s *Store) Schedules(id chat.ID) (all []Schedule, err error) {
	r, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	return s.schedulesOf(r.UID)
}

// Schedule is one of a chat's, or [chat.ErrNotFound].
func (s *Store) Schedule(id chat.ID, schedule string) (out Schedule, err error) {
	r, err := s.Get(id)
	if err != nil {
		return out, err
	}
	return view(s.db, func(tx *bbolt.Tx) (Schedule, error) { return getSchedule(tx, r.UID, schedule) })
}

// EachSchedule calls visit for every schedule of every chat, in any order. visit must not change
// the state.
func (s *Store) EachSchedule(visit func(Record, Schedule)) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return each(tx, scheduleBucket, "schedule", func(k []byte, sched *Schedule) error {
			// A schedule of no chat is passed over.
			if r, err := s.GetUID(uidOf(k)); err == nil && string(k) == string(scheduleKey(r.UID, sched.ID)) {
				visit(r, *sched)
			}
			return nil
		})
	})
}

// uidOf is the uid at the start of a key, as uidKey encodes it; 0 if the key is too short.
func uidOf(key []byte) uint32 {
	if len(key) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(key)
}

func putSchedule(tx *bbolt.Tx, uid uint32, sched *Schedule) error {
	return put(tx, scheduleBucket, scheduleKey(uid, sched.ID), sched)
}

func getSchedule(tx *bbolt.Tx, uid uint32, id string) (sched Schedule, err error) {
	v := tx.Bucket(scheduleBucket).Get(scheduleKey(uid, id))
	if id == "" || v == nil {
		return sched, fmt.Errorf("cannot find schedule %s: %w", chat.Quote(id), chat.ErrNotFound)
	}
	if err := json.Unmarshal(v, &sched); err != nil {
		return sched, fmt.Errorf("cannot read schedule %s: %w", chat.Quote(id), err)
	}
	return sched, nil
}

func (s *Store) schedulesOf(uid uint32) ([]Schedule, error) {
	return view(s.db, func(tx *bbolt.Tx) (all []Schedule, err error) {
		c := tx.Bucket(scheduleBucket).Cursor()
		for k, v := c.Seek(uidKey(uid)); bytes.HasPrefix(k, uidKey(uid)); k, v = c.Next() {
			var sched Schedule
			if err := json.Unmarshal(v, &sched); err != nil {
				return nil, fmt.Errorf("cannot read the schedule under key %x: %w", k, err)
			}
			all = append(all, sched)
		}
		slices.SortStableFunc(all, func(a, b Schedule) int { return a.CreatedAt.Compare(b.CreatedAt) })
		return all, nil
	})
}

// forgetSchedules removes the schedules of a chat that is being forgotten.
func forgetSchedules(tx *bbolt.Tx, uid uint32) error {
	c, key := tx.Bucket(scheduleBucket).Cursor(), uidKey(uid)
	for k, _ := c.Seek(key); bytes.HasPrefix(k, key); k, _ = c.Seek(key) {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}
