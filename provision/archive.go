package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/state"
)

// Archive writes a chat down: its home, its record, its schedules and the log of its terminal. The
// chat sleeps first, unless how keeps it and a snapshot can be taken of its home. What was written
// is read again before the chat is reaped, unless how keeps it. Until then the archive ends with
// ctx, and the chat is as it was, except for its sleep.
func (m *Manager) Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (a chat.Archive, err error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return a, err
	}
	busy := fmt.Errorf("cannot use chat %s: it is being archived: %w", id, chat.ErrBusy)
	if how.Keep && m.archive.keeps(id) {
		return a, busy // its owner's place is taken for hours
	}
	leave, err := m.beginArchive(ctx, rec, "archive")
	if err != nil {
		return a, err
	}
	defer leave()
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return a, err
	}
	lock := archiveLock{
		release: sync.OnceFunc(unlock), occupy: func() { m.locks.occupy(id, busy) },
	}
	defer lock.release()
	if how.Keep {
		if !m.archive.keep(id) {
			return a, busy
		}
		defer m.archive.kept(id)
		if err := m.mayKeepMore(ctx, id); err != nil {
			return a, err
		}
	}
	m.archive.progress(id, &chat.ArchiveProgress{Doing: "packing"})
	defer m.archive.progress(id, nil)
	return m.archiveLocked(ctx, id, how, lock)
}

// archiveLock is the chat's lock, which an archive holds. occupy is called if it holds it for long,
// release if it does not need it any more.
type archiveLock struct{ release, occupy func() }

const (
	// maxArchiving bounds the archives that are written and read at once: root copies and hashes
	// their bytes. One place is always left to another owner. archiveHold is how long one may
	// occupy its place.
	maxArchiving = 2
	archiveHold  = 24 * time.Hour
	// maxKept bounds the archives of a chat that its bridge has it keep. Those of reaped chats are
	// bounded by the uids of their owner.
	maxKept = 3
)

// beginArchive waits until few others are written or read; owners take turns.
func (m *Manager) beginArchive(ctx context.Context, rec state.Record, verb string) (leave func(), err error) {
	leave, err = m.archiving.Enter(ctx, rec.Owner, verb)
	if err != nil {
		return nil, fmt.Errorf("cannot %s chat %s: others are under way: %w: %w", verb, rec.ID, err,
			chat.ErrBusy)
	}
	return leave, nil
}

// mayKeepMore refuses a bridge more archives of a chat that stays. The caller holds its lock.
func (m *Manager) mayKeepMore(ctx context.Context, id chat.ID) error {
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		return nil
	}
	all, err := m.Archives(ctx, chat.ArchiveFilter{Chat: id})
	if err == nil && len(all) >= maxKept {
		err = fmt.Errorf("cannot archive chat %s: it has %d archives, which is the most that are "+
			"kept beside it: remove one: %w", id, len(all), chat.ErrBusy)
	}
	return err
}

// archiveLocked is Archive for a caller that holds the chat's lock, and ends its progress.
func (m *Manager) archiveLocked(
	ctx context.Context, id chat.ID, how chat.ToArchive, lock archiveLock,
) (a chat.Archive, err error) {
	rec, err := m.store.Get(id)
	if err != nil {
		return a, err
	}
	if rec.Phase != chat.Ready {
		return a, notReady(rec, "archive")
	}
	if _, ok := m.opt.Profiles[rec.Profile]; !ok {
		return a, fmt.Errorf("cannot archive chat %s: its profile %s is not configured any more: "+
			"%w", id, rec.Profile, chat.ErrWrongPhase)
	}
	if err := m.mayBegin(ctx); err != nil {
		return a, err
	}
	store, err := m.archiveStore()
	if err != nil {
		return a, err
	}
	name := store.FreeName(id, time.Now())
	detail := map[string]string{"archive": string(name), "keep": strconv.FormatBool(how.Keep)}
	err = m.audited(ctx, rec, "archive", detail, func() error {
		a, err = m.writeArchive(ctx, store, rec, name, how, lock)
		detail["bytes"] = strconv.FormatInt(a.Bytes, 10)
		if a.Snapshot {
			detail["snapshot"] = "true"
		}
		return err
	})
	sys.Failpoint("archive.commit.after")
	if err != nil || how.Keep {
		return a, err
	}
	return a, m.reapReady(context.WithoutCancel(ctx), rec)
}

// writeArchive makes the archive of the chat, of a snapshot or while it sleeps.
func (m *Manager) writeArchive(
	ctx context.Context, store *archives.Store, rec state.Record, name chat.ArchiveName,
	how chat.ToArchive, lock archiveLock,
) (a chat.Archive, err error) {
	from, err := m.stillHome(ctx, rec, how, lock)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, from.done()) }()
	rest, err := m.restOf(rec)
	if err != nil {
		return a, err
	}
	if from.snapshot {
		lock.release()
	}
	draft, err := store.Begin(name)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, draft.Discard()) }()
	p := archives.Packing{Do: from.do, Draft: draft}
	if p.Recipients, err = m.archiveKeys(m.opt.Archives.Recipients); err != nil {
		return a, err
	}
	home, err := p.Home(ctx, from.dir)
	if err == nil {
		err = p.Rest(ctx, rest)
	}
	if err != nil {
		return a, fmt.Errorf("cannot archive chat %s: %w", rec.ID, err)
	}
	record, err := clearRecord(rec)
	if err != nil {
		return a, err
	}
	draft.NotBefore(latest(m.store.All()))
	left := from.left.With(home)
	sys.Failpoint("archive.commit.before")
	a, err = draft.Commit(ctx, chat.Archive{
		Chat: rec.ID, ExternalID: rec.ExternalID, Owner: rec.Owner, Agent: rec.Agent,
		Profile: rec.Profile, Labels: rec.Labels, CreatedAt: rec.CreatedAt,
		ArchivedAt: time.Now().UTC().Round(0), Entries: home.Entries, Bytes: home.Bytes,
		Encrypted: p.Recipients != "", Kept: how.Keep, Left: left.Left, LeftNames: left.LeftNames,
	}, record)
	a.Snapshot, a.Slept = from.snapshot, from.slept // said once, and not in the manifest
	return a, err
}

// homeSource is a home that nothing changes while it is read.
type homeSource struct {
	do  archives.Do
	dir string // where do sees it
	// left is what of the home is not in dir.
	left     archives.Result
	snapshot bool
	// slept is why an awake chat sleeps now that is kept.
	slept string
	done  func() error
}

// stillHome takes a snapshot of the home of an awake chat that is kept. Where that cannot be, and
// of another chat, it lets the chat sleep.
func (m *Manager) stillHome(
	ctx context.Context, rec state.Record, how chat.ToArchive, lock archiveLock,
) (from homeSource, err error) {
	if s := m.session(rec.ID); how.Keep && s.lives() {
		if from, err = m.takeSnapshot(ctx, rec, s); err == nil {
			return from, nil
		}
		switch held := m.frozen(rec.ID) == chat.FrozenUntilThawed; {
		case ctx.Err() != nil || held || errors.Is(err, chat.ErrInvalid): // none can be made at all
			return from, err
		case how.StayAwake:
			return from, fmt.Errorf("cannot archive chat %s without putting it to sleep: %w: %w",
				rec.ID, err, chat.ErrBusy)
		}
		m.log.Info("a chat sleeps for its archive: no snapshot", "chat", rec.ID, "why", err)
		from = homeSource{slept: chat.ErrorText(err)}
	}
	lock.occupy()
	if m.session(rec.ID) != nil {
		if err := m.sleepLocked(ctx, rec, "it is archived"); err != nil {
			return from, err
		}
	}
	done, err := m.shares.Wake(ctx, rec.ID, m.place(rec))
	from.do, from.dir = m.archiveDo(rec), m.home(rec.ID)
	from.done = func() error { done(); return nil }
	return from, err
}

// clearRecord is the part of a record that an archive has in clear: all but the variables.
func clearRecord(rec state.Record) (json.RawMessage, error) {
	rec.Env = nil
	text, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("cannot write the record of chat %s: %w", rec.ID, err)
	}
	return text, nil
}

// archivedRest is what an archive has of a chat besides its home and its record.
type archivedRest struct {
	Env       map[string]string `json:"env,omitempty"`
	Schedules []state.Schedule  `json:"schedules,omitempty"`
	// Log is the log of the terminal, from its oldest kept byte.
	Log []byte `json:"log,omitempty"`
}

// restOf returns it. The chat sleeps, or a snapshot was taken just now.
func (m *Manager) restOf(rec state.Record) (text []byte, err error) {
	s := archivedRest{Env: rec.Env}
	if s.Schedules, err = m.store.Schedules(rec.ID); err != nil {
		return nil, err
	}
	for i := range s.Schedules {
		s.Schedules[i].RunningSince = nil // a chat of it sleeps
	}
	if s.Log, err = m.logs.All(rec.ID); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(s); err != nil {
		return nil, fmt.Errorf("cannot archive the schedules and log of chat %s: %w", rec.ID, err)
	}
	return text, nil
}
