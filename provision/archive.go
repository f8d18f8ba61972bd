package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
func (k *archiver) Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (a chat.Archive, err error) {
	rec, err := k.chats.reach(ctx, id)
	if err != nil {
		return a, err
	}
	busy := fmt.Errorf("cannot use chat %s: it is being archived: %w", id, chat.ErrBusy)
	if how.Keep && k.archive.Keeps(id) {
		return a, busy // its owner's place is taken for hours
	}
	leave, err := k.takeTurn(ctx, id, rec.Owner, "archive")
	if err != nil {
		return a, err
	}
	defer leave()
	unlock, err := k.chats.locks.Lock(ctx, id)
	if err != nil {
		return a, err
	}
	p := packing{archiver: k, how: how, release: sync.OnceFunc(unlock),
		occupy: func() { k.chats.locks.Occupy(id, busy) }}
	defer p.release()
	if how.Keep {
		if !k.archive.Keep(id) {
			return a, busy
		}
		defer k.archive.Kept(id)
		if err := k.mayKeepMore(ctx, id); err != nil {
			return a, err
		}
	}
	k.archive.SetProgress(id, &chat.ArchiveProgress{Doing: "packing"})
	defer k.archive.SetProgress(id, nil)
	return p.pack(ctx, id)
}

// packing is the archive of a chat. The caller holds the chat's lock, and ends the archive's progress.
type packing struct {
	*archiver
	how chat.ToArchive
	rec subject
	// of is the session of a chat that stays awake.
	of *liveSession
	// occupy is called if the chat's lock is held for long, release if it is not needed any more.
	release, occupy func()
}

// takeTurn waits until few others are written or read; owners take turns.
func (k *archiver) takeTurn(ctx context.Context, id chat.ID, owner, verb string) (leave func(), err error) {
	leave, err = k.archiving.Enter(ctx, owner, verb)
	if err != nil {
		return nil, fmt.Errorf("cannot %s chat %s: others are under way: %w: %w", verb, id, err, chat.ErrBusy)
	}
	return leave, nil
}

// mayKeepMore refuses a bridge more archives of a chat that stays. The caller holds its lock.
func (k *archiver) mayKeepMore(ctx context.Context, id chat.ID) error {
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		return nil
	}
	all, err := k.Archives(ctx, chat.ArchiveFilter{Chat: id})
	if err == nil && len(all) >= maxKept {
		err = fmt.Errorf("cannot archive chat %s: it has %d archives, which is the most that are "+
			"kept beside it: remove one: %w", id, len(all), chat.ErrBusy)
	}
	return err
}

// pack is Archive with the chat's lock.
func (k *packing) pack(ctx context.Context, id chat.ID) (a chat.Archive, err error) {
	if k.rec, err = k.chats.get(id); err != nil {
		return a, err
	}
	rec, how := k.rec, k.how
	if rec.Phase != chat.Ready {
		return a, notReady(rec, "archive")
	}
	if err := k.chats.configured(rec, "archive"); err != nil {
		return a, err
	}
	if err := k.starts.MayBegin(ctx); err != nil {
		return a, err
	}
	store, err := k.open()
	if err != nil {
		return a, err
	}
	name := store.FreeName(id, time.Now())
	detail := map[string]string{"archive": string(name), "keep": strconv.FormatBool(how.Keep)}
	err = k.trail.Around(ctx, rec.Record, "archive", detail, func() error {
		a, err = k.write(ctx, store, name)
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
	return a, k.reapReady(context.WithoutCancel(ctx), rec)
}

// write makes the archive of the chat, of a snapshot or while it sleeps.
func (k *packing) write(
	ctx context.Context, store *archives.Store, name chat.ArchiveName,
) (a chat.Archive, err error) {
	rec := k.rec
	from, err := k.stillHome(ctx)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, from.done()) }()
	record, rest, err := k.besideHome(rec)
	if err != nil {
		return a, err
	}
	if from.snapshot {
		k.release()
	}
	draft, err := store.Begin(name)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, draft.Discard()) }()
	p := archives.Packing{Do: from.do, Draft: draft}
	if p.Recipients, err = k.keys(k.opt.Archives.Recipients); err != nil {
		return a, err
	}
	home, err := p.Home(ctx, from.dir)
	if err == nil {
		err = p.Rest(ctx, rest)
	}
	if err != nil {
		return a, fmt.Errorf("cannot archive chat %s: %w", rec.ID, err)
	}
	draft.NotBefore(latest(k.store.All()))
	left := from.left.With(home)
	sys.Failpoint("archive.commit.before")
	a, err = draft.Commit(ctx, chat.Archive{
		Chat: rec.ID, ExternalID: rec.ExternalID, Owner: rec.Owner, Agent: rec.Agent,
		Profile: rec.Profile, Labels: rec.Labels, CreatedAt: rec.CreatedAt,
		ArchivedAt: time.Now().UTC().Round(0), Entries: home.Entries, Bytes: home.Bytes,
		Encrypted: p.Recipients != "", Kept: k.how.Keep, Left: left.Left, LeftNames: left.LeftNames,
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
func (k *packing) stillHome(ctx context.Context) (from homeSource, err error) {
	rec := k.rec
	if k.of = k.chats.session(rec.ID); k.how.Keep && k.of.lives() {
		if from, err = k.takeSnapshot(ctx); err == nil {
			return from, nil
		}
		switch held := k.groups.frozen(rec.ID) == chat.FrozenUntilThawed; {
		case ctx.Err() != nil || held || errors.Is(err, chat.ErrInvalid): // none can be made at all
			return from, err
		case k.how.StayAwake:
			return from, fmt.Errorf("cannot archive chat %s without putting it to sleep: %w: %w",
				rec.ID, err, chat.ErrBusy)
		}
		k.log.Info("a chat sleeps for its archive: no snapshot", "chat", rec.ID, "why", err)
		from = homeSource{slept: chat.ErrorText(err)}
	}
	k.occupy()
	if k.chats.session(rec.ID) != nil {
		if err := k.sleep(ctx, rec, "it is archived"); err != nil {
			return from, err
		}
	}
	done, err := k.shares.Wake(ctx, rec.ID, rec.place())
	from.do, from.dir = k.do(rec), rec.home
	from.done = func() error { done(); return nil }
	return from, err
}

// archivedRest is what an archive has of a chat besides its home and its record.
type archivedRest struct {
	Env       map[string]string `json:"env,omitempty"`
	Schedules []state.Schedule  `json:"schedules,omitempty"`
	// Log is the log of the terminal, from its oldest kept byte.
	Log []byte `json:"log,omitempty"`
}

// besideHome returns what an archive has of a chat besides its home: the record in clear, but for the
// variables, and the rest. The chat sleeps, or a snapshot was taken just now.
func (k *archiver) besideHome(rec subject) (record, rest []byte, err error) {
	s := archivedRest{Env: rec.Env}
	if s.Schedules, err = k.store.Schedules(rec.ID); err != nil {
		return nil, nil, err
	}
	for i := range s.Schedules {
		s.Schedules[i].RunningSince = nil // a chat of it sleeps
	}
	if s.Log, err = k.logs.All(rec.ID); err != nil {
		return nil, nil, err
	}
	rec.Env = nil
	record, err = json.Marshal(rec.Record)
	if err == nil {
		rest, err = json.Marshal(s)
	}
	if err != nil {
		err = fmt.Errorf("cannot archive the record, schedules and log of chat %s: %w", rec.ID, err)
	}
	return record, rest, err
}

// latest is the latest time that the records know of: it is over, whatever the clock says.
func latest(all []state.Record) (at time.Time) {
	for _, rec := range all {
		at = slices.MaxFunc([]time.Time{at, rec.CreatedAt, rec.UsedAt}, time.Time.Compare)
	}
	return at
}
