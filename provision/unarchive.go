package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/chatd/chatd/archiver"
	"github.com/chatd/chatd/archives"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
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
	if _, ok := m.opt.Profiles[former.Profile]; !ok {
		return c, fmt.Errorf("cannot unarchive %s: its profile %s is not configured: %w", name,
			former.Profile, chat.ErrInvalid)
	}
	if err := m.mayBegin(ctx); err != nil {
		return c, err
	}
	if err := m.ensureBlock(ctx, former.Profile); err != nil {
		return c, err
	}
	unlock, err := m.locks.lock(ctx, former.ID)
	if err != nil {
		return c, err
	}
	defer unlock()
	rec, err := m.shares.Unarchive(ctx, name, former, state.Event{
		Action: "unarchive", Outcome: "intent", Caller: chat.CallerFrom(ctx),
		Detail: archiveDetail(name),
	})
	if err != nil {
		return c, err
	}
	sys.Failpoint("unarchive.record.after")
	u := unpacking{m: m, rec: rec, store: store, archive: a}
	if err := u.all(ctx); err != nil {
		undone := m.giveUp(ctx, rec, "unarchive", err)
		return c, errors.Join(fmt.Errorf("cannot unarchive %s: %w", name, err), undone)
	}
	rec, err = m.store.Get(rec.ID)
	return m.show(ctx, rec), err
}

// formerRecord is the record in an archive, which this install wrote.
func formerRecord(a archives.Manifest) (rec state.Record, err error) {
	if err := json.Unmarshal(a.Record, &rec); err != nil {
		return rec, fmt.Errorf("cannot read the record in archive %s: %w: %w", a.Name, err,
			chat.ErrInvalid)
	}
	return rec, nil
}

// giveUpUnarchive removes a chat whose unarchive was killed, under the chat's lock. Its archive
// stays.
func (m *Manager) giveUpUnarchive(ctx context.Context, rec state.Record) error {
	why := fmt.Errorf("cannot create chat %s: its unarchive was cut off: unarchive %s again: %w",
		rec.ID, rec.Unarchives, chat.ErrBusy)
	return errors.Join(why, m.giveUp(ctx, rec, "unarchive", why))
}

// unpacking is the unarchive of a chat. The caller holds the chat's lock.
type unpacking struct {
	m          *Manager
	rec        state.Record
	store      *archives.Store
	archive    archives.Manifest
	identities string // of age
}

// all makes the chat, fills it, and makes it ready.
func (u unpacking) all(ctx context.Context) (err error) {
	m := u.m
	if u.archive.Encrypted {
		if u.identities, err = u.keys(); err != nil {
			return err
		}
	}
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
	if err := u.home(ctx); err != nil {
		return err
	}
	rest, err := u.rest(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(m.logs.Refill(u.rec.ID, rest.Log), m.makeInstanceDirs(u.rec)); err != nil {
		return err
	}
	sys.Failpoint("unarchive.ready.before")
	return m.store.Unarchived(u.rec.ID, rest.Env, rest.Schedules,
		m.event(ctx, u.rec, "unarchive", "done", archiveDetail(u.archive.Name)))
}

func (u unpacking) keys() (string, error) {
	file := u.m.opt.Archives.Identities
	if file == "" {
		return "", fmt.Errorf("it is encrypted, and the config names no archive_identities: %w",
			chat.ErrInvalid)
	}
	return u.m.archiveKeys(file)
}

// home unpacks the home, and wants all of it to be what was archived.
func (u unpacking) home(ctx context.Context) error {
	r, err := u.read(ctx, archives.Home, "unpack", []string{u.m.home(u.rec.ID)}, nil)
	if err == nil && r.SHA256 != u.archive.Files[archives.Home].Content {
		err = errDiffers
	}
	return err
}

// rest reads what else the archive has. It is parsed only if its hash is that of what was archived.
func (u unpacking) rest(ctx context.Context) (rest sealedPart, err error) {
	var text []byte
	r, err := u.read(ctx, archives.Chat, "open", nil, func(in io.Reader) (err error) {
		text, err = io.ReadAll(io.LimitReader(in, maxSealed+1))
		return err
	})
	if err != nil {
		return rest, err
	}
	if want := u.archive.Files[archives.Chat].Content; r.SHA256 != want || hashOf(text) != want {
		return rest, errDiffers
	}
	if err := json.Unmarshal(text, &rest); err != nil {
		return rest, fmt.Errorf("cannot read the schedules and log: %w: %w", err, chat.ErrInvalid)
	}
	return rest, nil
}

// read does a command of chatd-archive on a part, whose hash must be that of the manifest.
func (u unpacking) read(
	ctx context.Context, part archives.Part, verb string, args []string,
	out func(io.Reader) error,
) (r archiver.Result, err error) {
	f, err := u.store.OpenPart(u.archive, part)
	if err != nil {
		return r, err
	}
	hashed := archives.Hashing(f)
	command, in := from(verb, u.identities, hashed)
	r, err = u.m.archiveTask(ctx, u.rec, "unpacking", archiver.Task{
		Args: append(command, args...), In: in, Out: out,
	})
	if err == nil {
		err = hashed.Check(u.archive, part)
	}
	return r, errors.Join(err, f.Close())
}
