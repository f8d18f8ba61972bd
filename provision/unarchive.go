package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/admission"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/state"
)

// unarchive makes the chat of an archive again: its id, its record, its home, its schedules and its
// log, under a new uid, asleep. All of it is there, or after an error nothing; the archive stays.
// With ctx it ends early.
func (k *archiver) unarchive(ctx context.Context, name chat.ArchiveName) (c subject, err error) {
	store, a, err := k.reachArchive(ctx, name)
	if err != nil {
		return c, err
	}
	var record state.Record // which this install wrote
	if err := json.Unmarshal(a.Record, &record); err != nil {
		return c, chat.Invalid("cannot read the record in archive %s: %w", name, err)
	}
	former := k.chats.subject(record)
	u := unpacking{m: k, start: k.starts.New()}
	defer u.start.End()
	u.Store, u.Archive = store, a
	if err := u.canRead(); err != nil { // before it costs a uid
		return c, fmt.Errorf("cannot unarchive %s: %w", name, err)
	}
	if err := k.mayUnarchive(ctx, name, former, u.start); err != nil {
		return c, err
	}
	leave, err := k.takeTurn(ctx, former.ID, former.Owner, "unarchive")
	if err != nil {
		return c, err
	}
	defer leave()
	unlock, err := k.chats.locks.Lock(ctx, former.ID)
	if err != nil {
		return c, err
	}
	defer unlock()
	k.chats.locks.Occupy(former.ID, fmt.Errorf("cannot use chat %s: it is being unarchived: %w",
		former.ID, chat.ErrBusy))
	if err := u.CheckTried(ctx); err != nil {
		return c, err
	}
	record, err = k.shares.Unarchive(ctx, name, record, state.Event{
		Action: "unarchive", Outcome: "intent", Caller: chat.CallerFrom(ctx), Detail: archiveDetail(name),
	})
	if err != nil {
		return c, err
	}
	sys.Failpoint("unarchive.record.after")
	u.c = k.chats.subject(record)
	u.Do = k.do(u.c)
	if err := u.all(ctx); err != nil {
		u.KeepTried(ctx, err)
		undone := k.giveUp(ctx, u.c, "unarchive", err)
		return c, errors.Join(fmt.Errorf("cannot unarchive %s: %w", name, err), undone)
	}
	return k.chats.get(u.c.ID)
}

// mayUnarchive refuses what a create of the chat would be refused.
func (k *archiver) mayUnarchive(
	ctx context.Context, name chat.ArchiveName, former subject, st *admission.Start,
) error {
	if _, ok := k.opt.Profiles[former.Profile]; !ok {
		return chat.Invalid("cannot unarchive %s: its profile %s is not configured", name, former.Profile)
	}
	if _, err := k.store.Find(former.Owner, former.ExternalID); err == nil {
		return fmt.Errorf("cannot unarchive %s: its conversation has a chat, %s: reap that first: %w",
			name, former.ID, chat.ErrExists)
	}
	if err := k.mayUse(chat.CallerFrom(ctx), former.Profile); err != nil {
		return err
	}
	return k.mayMake(ctx, former.Owner, former.rules(), st)
}

// unarchiveFor makes the chat of the newest archive of a conversation that has none. An archive that
// cannot be read is an error: an empty chat would be taken for the one that was archived.
func (k *archiver) unarchiveFor(ctx context.Context, owner, externalID string) error {
	if _, err := k.store.Find(owner, externalID); err == nil {
		return nil
	}
	id, err := k.store.NewID(owner, externalID)
	if err != nil {
		return err
	}
	store, err := k.open()
	if err != nil {
		return err
	}
	f := chat.ArchiveFilter{Chat: id, Owner: owner, ExternalID: externalID}
	all, err := store.List(f) // reads those of this chat alone
	if err != nil || len(all) == 0 {
		return err
	}
	_, err = k.unarchive(ctx, all[len(all)-1].Name)
	if errors.Is(err, chat.ErrExists) {
		return nil // another caller was first
	}
	return err
}

// giveUpUnarchive removes a chat whose unarchive was killed, under the chat's lock, and returns why
// it is not there. Its archive stays.
func (l *life) giveUpUnarchive(ctx context.Context, rec subject) (why, err error) {
	why = fmt.Errorf("cannot create chat %s: its unarchive was cut off: unarchive %s again: %w",
		rec.ID, rec.Unarchives, chat.ErrBusy)
	return why, l.giveUp(ctx, rec, "unarchive", why)
}

// unpacking is the unarchive of a chat. The caller holds the chat's lock.
type unpacking struct {
	archives.Unpacking
	m     *archiver
	c     subject
	start *admission.Start
}

// canRead refuses an archive whose files or keys are not there.
func (u *unpacking) canRead() (err error) {
	if u.Archive.Encrypted {
		file := u.m.opt.Archives.Identities
		if file == "" {
			return chat.Invalid("it is encrypted, and the config names no archive.identities")
		}
		if u.Identities, err = u.m.keys(file); err != nil {
			return err
		}
	}
	for _, p := range []archives.Part{archives.Home, archives.Chat} {
		f, err := u.Store.OpenPart(u.Archive, p)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// all makes the chat, fills it, and makes it ready.
func (u *unpacking) all(ctx context.Context) (err error) {
	m := u.m
	if err := u.start.Enter(ctx, u.c.ID, u.c.Owner, "unarchive"); err != nil {
		return err
	}
	err = m.asleepSteps().forwards(ctx, m.log, "unarchive", u.c)
	if u.start.End(); err != nil {
		return err
	}
	done, err := m.shares.Wake(ctx, u.c.ID, u.c.place())
	if err != nil {
		return err
	}
	defer done()
	defer m.archive.SetProgress(u.c.ID, nil)
	if err := u.Home(ctx, u.c.home); err != nil {
		return err
	}
	text, err := u.Rest(ctx)
	if err != nil {
		return err
	}
	var rest archivedRest
	if err := json.Unmarshal(text, &rest); err != nil {
		return chat.Invalid("cannot read the schedules and log: %w", err)
	}
	err = errors.Join(m.logs.Refill(u.c.ID, rest.Log), m.dirs.MakeInstanceDirs(u.c.Record))
	if err != nil {
		return err
	}
	sys.Failpoint("unarchive.ready.before")
	return m.store.Unarchived(u.c.ID, rest.Env, rest.Schedules,
		m.trail.Event(ctx, u.c.Record, "unarchive", "done", archiveDetail(u.Archive.Name)))
}

// Unarchive makes the chat of an archive again; see [archiver.unarchive].
func (m *Manager) Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error) {
	c, err := m.unarchive(ctx, name)
	return m.shown(ctx, c, err)
}
