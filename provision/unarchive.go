package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// Unarchive makes the chat of an archive again: its id, its record, its home, its schedules and its
// log, under a new uid, asleep. All of it is there, or after an error nothing; the archive stays.
// With ctx it ends early.
func (m *Manager) Unarchive(ctx context.Context, name chat.ArchiveName) (c chat.Chat, err error) {
	store, a, err := m.reachArchive(ctx, name)
	if err != nil {
		return c, err
	}
	former, err := formerRecord(a)
	if err != nil {
		return c, err
	}
	u := unpacking{m: m}
	u.Store, u.Archive = store, a
	if err := u.canRead(); err != nil { // before it costs a uid
		return c, fmt.Errorf("cannot unarchive %s: %w", name, err)
	}
	if err := m.mayUnarchive(ctx, name, former); err != nil {
		return c, err
	}
	leave, err := m.beginArchive(ctx, former, "unarchive")
	if err != nil {
		return c, err
	}
	defer leave()
	unlock, err := m.locks.lock(ctx, former.ID)
	if err != nil {
		return c, err
	}
	defer unlock()
	m.locks.occupy(former.ID, fmt.Errorf("cannot use chat %s: it is being unarchived: %w",
		former.ID, chat.ErrBusy))
	if err := u.checkTried(ctx); err != nil {
		return c, err
	}
	rec, err := m.shares.Unarchive(ctx, name, former, state.Event{
		Action: "unarchive", Outcome: "intent", Caller: chat.CallerFrom(ctx),
		Detail: archiveDetail(name),
	})
	if err != nil {
		return c, err
	}
	sys.Failpoint("unarchive.record.after")
	u.rec, u.Do = rec, m.archiveDo(rec)
	if err := u.all(ctx); err != nil {
		u.keepTried(ctx, err)
		undone := m.giveUp(ctx, rec, "unarchive", err)
		return c, errors.Join(fmt.Errorf("cannot unarchive %s: %w", name, err), undone)
	}
	rec, err = m.store.Get(rec.ID)
	return m.show(ctx, rec), err
}

// mayUnarchive refuses what a create of the chat would be refused.
func (m *Manager) mayUnarchive(ctx context.Context, name chat.ArchiveName, former state.Record) error {
	if _, ok := m.opt.Profiles[former.Profile]; !ok {
		return fmt.Errorf("cannot unarchive %s: its profile %s is not configured: %w", name,
			former.Profile, chat.ErrInvalid)
	}
	if _, err := m.store.Find(former.Owner, former.ExternalID); err == nil {
		return fmt.Errorf("cannot unarchive %s: its conversation has a chat, %s: reap that first: %w",
			name, former.ID, chat.ErrExists)
	}
	if err := m.mayUse(chat.CallerFrom(ctx), former.Profile); err != nil {
		return err
	}
	if err := m.mayBegin(ctx); err != nil {
		return err
	}
	if err := m.policy.Raise(ctx, []policy.Chat{m.chatOf(former)}); err != nil {
		return err
	}
	if err := m.shares.Create(ctx, former.Owner); err != nil {
		return err
	}
	return m.ensureBlock(ctx, former.Profile)
}

// unarchiveFor makes the chat of the newest archive of a conversation that has none. An archive that
// cannot be read is an error: an empty chat would be taken for the one that was archived.
func (m *Manager) unarchiveFor(ctx context.Context, owner, externalID string) error {
	if _, err := m.store.Find(owner, externalID); err == nil {
		return nil
	}
	id, err := m.store.NewID(owner, externalID)
	if err != nil {
		return err
	}
	store, err := m.archiveStore()
	if err != nil {
		return err
	}
	f := chat.ArchiveFilter{Chat: id, Owner: owner, ExternalID: externalID}
	all, err := store.List(f) // reads those of this chat alone
	if err != nil || len(all) == 0 {
		return err
	}
	_, err = m.Unarchive(ctx, all[len(all)-1].Name)
	if errors.Is(err, chat.ErrExists) {
		return nil // another caller was first
	}
	return err
}

// formerRecord is the record in an archive, which this install wrote.
func formerRecord(a archives.Manifest) (rec state.Record, err error) {
	if err := json.Unmarshal(a.Record, &rec); err != nil {
		return rec, fmt.Errorf("cannot read the record in archive %s: %w: %w", a.Name, err,
			chat.ErrInvalid)
	}
	return rec, nil
}

// errCutOff is why a chat is removed whose unarchive was killed.
func errCutOff(rec state.Record) error {
	return fmt.Errorf("cannot create chat %s: its unarchive was cut off: unarchive %s again: %w",
		rec.ID, rec.Unarchives, chat.ErrBusy)
}

// giveUpUnarchive removes a chat whose unarchive was killed, under the chat's lock. Its archive
// stays.
func (m *Manager) giveUpUnarchive(ctx context.Context, rec state.Record) error {
	return m.giveUp(ctx, rec, "unarchive", errCutOff(rec))
}

// unpacking is the unarchive of a chat. The caller holds the chat's lock.
type unpacking struct {
	archives.Unpacking
	m   *Manager
	rec state.Record
}

// canRead refuses an archive whose files or keys are not there.
func (u *unpacking) canRead() (err error) {
	if u.Archive.Encrypted {
		if u.Identities, err = u.m.identities(); err != nil {
			return err
		}
	}
	for _, p := range []archives.Part{archives.Home, archives.Chat} {
		f, err := u.Store.OpenPart(u.Archive, p)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// all makes the chat, fills it, and makes it ready.
func (u unpacking) all(ctx context.Context) (err error) {
	m := u.m
	leave, err := m.acquireStart(ctx, u.rec, "unarchive")
	if err != nil {
		return err
	}
	err = m.forwards(ctx, "unarchive", asleepSteps(), u.rec)
	if leave(); err != nil {
		return err
	}
	done, err := m.shares.Wake(ctx, u.rec.ID, m.place(u.rec))
	if err != nil {
		return err
	}
	defer done()
	defer m.archive.progress(u.rec.ID, nil)
	if err := u.Home(ctx, m.home(u.rec.ID)); err != nil {
		return err
	}
	rest, err := u.rest(ctx)
	if err != nil {
		return err
	}
	err = errors.Join(m.logs.Refill(u.rec.ID, rest.Log), m.makeInstanceDirs(u.rec))
	if err != nil {
		return err
	}
	sys.Failpoint("unarchive.ready.before")
	return m.store.Unarchived(u.rec.ID, rest.Env, rest.Schedules,
		m.event(ctx, u.rec, "unarchive", "done", archiveDetail(u.Archive.Name)))
}

// identities are the keys that decrypt archives.
func (m *Manager) identities() (string, error) {
	file := m.opt.Archives.Identities
	if file == "" {
		return "", fmt.Errorf("it is encrypted, and the config names no archive.identities: %w",
			chat.ErrInvalid)
	}
	return m.archiveKeys(file)
}

// rest reads what else the archive has.
func (u unpacking) rest(ctx context.Context) (rest archivedRest, err error) {
	text, err := u.Rest(ctx)
	if err != nil {
		return rest, err
	}
	if err := json.Unmarshal(text, &rest); err != nil {
		return rest, fmt.Errorf("cannot read the schedules and log: %w: %w", err, chat.ErrInvalid)
	}
	return rest, nil
}
