package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unique"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// Record is the stored state of one chat. It exists before the chat's first layer is created and
// until the last is removed.
type Record struct {
	ID         chat.ID           `json:"id"`
	UID        uint32            `json:"uid"`
	ExternalID string            `json:"external_id"`
	Owner      string            `json:"owner"`
	Agent      string            `json:"agent"`
	Profile    string            `json:"profile"`
	Env        map[string]string `json:"env,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	// EgressAdd and EgressRemove are its [chat.EgressChange].
	EgressAdd    []chat.Allow `json:"egress_add,omitempty"`
	EgressRemove []chat.Allow `json:"egress_remove,omitempty"`
	// Limits is how its limits differ from its profile's.
	Limits chat.LimitChange `json:"limits,omitempty"`
	// Patched names what of the request that made the chat was changed since: profile, env.
	Patched []string   `json:"patched,omitempty"`
	Phase   chat.Phase `json:"phase"`
	// Unarchives is the archive that a chat in creation is made of. Only its creator can finish it.
	Unarchives chat.ArchiveName `json:"unarchives,omitempty"`
	// Account is the backend that made the account: userdb or useradd; empty
	// until [Store.SetAccount].
	Account   string    `json:"account,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at"`
}

// clone returns a copy that the caller may change.
func (r *Record) clone() Record {
	c := *r
	c.Labels, c.Env = maps.Clone(r.Labels), maps.Clone(r.Env)
	c.EgressAdd, c.EgressRemove = slices.Clone(r.EgressAdd), slices.Clone(r.EgressRemove)
	c.Limits, c.Patched = maps.Clone(r.Limits), slices.Clone(r.Patched)
	return c
}

func (r *Record) name() name { return name{r.Owner, r.ExternalID} }

// EgressChange is how the chat's egress differs from its profile's.
func (r *Record) EgressChange() chat.EgressChange {
	return chat.EgressChange{Add: r.EgressAdd, Remove: r.EgressRemove}
}

// intern shares the strings that many records have in common.
func (r *Record) intern() {
	for _, s := range []*string{&r.Owner, &r.Agent, &r.Profile, &r.Account} {
		*s = unique.Make(*s).Value()
	}
	r.Phase = chat.Phase(unique.Make(string(r.Phase)).Value())
}

// byAge is the order of lists: creation, then id.
func byAge(a, b *Record) int {
	if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// name identifies a chat to its caller.
type name struct{ owner, externalID string }

// index holds every record in memory, by each of its keys and in order.
type index struct {
	byID   map[chat.ID]*Record
	byName map[name]*Record
	byUID  map[uint32]*Record
	order  []*Record // sorted byAge
}

func newIndex(size int) *index {
	return &index{
		byID:   make(map[chat.ID]*Record, size),
		byName: make(map[name]*Record, size),
		byUID:  make(map[uint32]*Record, size),
		order:  make([]*Record, 0, size),
	}
}

// clash reports the key of r that another record already has.
func (x *index) clash(r *Record) error {
	switch {
	case x.byID[r.ID] != nil:
		return fmt.Errorf("cannot keep two chats with id %s: %w", r.ID, chat.ErrExists)
	case x.byUID[r.UID] != nil:
		return fmt.Errorf("cannot keep two chats with uid %d: %w", r.UID, chat.ErrExists)
	case x.byName[r.name()] != nil:
		return fmt.Errorf("cannot keep two chats of %s for %s: %w", chat.Quote(r.Owner),
			chat.Quote(r.ExternalID), chat.ErrExists)
	}
	return nil
}

func (x *index) add(r *Record) {
	r.intern()
	x.byID[r.ID], x.byName[r.name()], x.byUID[r.UID] = r, r, r
	at, _ := slices.BinarySearchFunc(x.order, r, byAge)
	x.order = slices.Insert(x.order, at, r)
}

func (x *index) remove(r *Record) {
	delete(x.byID, r.ID)
	delete(x.byName, r.name())
	delete(x.byUID, r.UID)
	if at, ok := slices.BinarySearchFunc(x.order, r, byAge); ok {
		x.order = slices.Delete(x.order, at, at+1)
	}
}

// load reads the whole database into memory and refuses an inconsistent one, which could give a uid
// twice.
func load(db *bbolt.DB) (x *index, blocks []*block, owners map[string]OwnerUse, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		if blocks, err = loadBlocks(tx); err != nil {
			return err
		}
		x = newIndex(tx.Bucket(recordBucket).Stats().KeyN)
		err = each(tx, recordBucket, "record", func(k []byte, r *Record) error { return x.load(k, r, blocks) })
		if err == nil {
			owners, err = countOwners(tx, x)
		}
		return err
	})
	return x, blocks, owners, err
}

func (x *index) load(k []byte, r *Record, blocks []*block) error {
	if string(k) != string(uidKey(r.UID)) {
		return chat.Invalid("cannot use the record of chat %s: uid %d lies under key %x", r.ID, r.UID, k)
	}
	if !isGiven(blocks, r.UID) {
		return chat.Invalid("cannot use the record of chat %s: uid %d was never given", r.ID, r.UID)
	}
	if err := x.clash(r); err != nil {
		return err
	}
	x.add(r)
	return nil
}

// take makes r what it is after a change, except for its last use.
func (r *Record) take(after *Record) {
	used := r.UsedAt
	*r = *after
	r.UsedAt = used
	r.intern()
}

// Patch changes a copy of the record, as [Store.Patch] stores it.
func (r *Record) Patch(p chat.Patch) (err error) {
	change := p.ApplyEgress(r.EgressChange())
	r.EgressAdd, r.EgressRemove = change.Add, change.Remove
	if p.ChangesLimits() {
		r.Limits = p.ApplyLimits(r.Limits)
	}
	if p.Profile != "" && p.Profile != r.Profile {
		r.Profile = p.Profile
		r.patched("profile")
	}
	var envErr error
	if p.ChangesEnv() {
		r.Env, envErr = p.ApplyEnv(r.Env)
		r.patched("env")
	}
	r.Labels, err = p.Apply(r.Labels)
	return errors.Join(err, envErr)
}

func (r *Record) patched(what string) {
	if !slices.Contains(r.Patched, what) {
		r.Patched = append(r.Patched, what)
	}
}
