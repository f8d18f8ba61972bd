package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// archiver has the verbs of archives.
type archiver struct {
	*life
	archiving *quota.Limiter
}

// open opens the directory of the archives at its first use.
func (k *archiver) open() (*archives.Store, error) {
	if k.opt.Archives == nil {
		return nil, fmt.Errorf("cannot archive: the config has no key archive: %w", chat.ErrUnsupported)
	}
	o := k.opt.Archives.Options
	o.Key = k.store.DeriveKey("archives")
	return k.archive.Open(o)
}

// Archives lists the archives of the caller's chats, or an operator everybody's, the oldest first.
func (k *archiver) Archives(ctx context.Context, f chat.ArchiveFilter) ([]chat.Archive, error) {
	if !ownOnly(ctx, &f.Owner) {
		return nil, nil
	}
	store, err := k.open()
	if err != nil {
		return nil, err
	}
	all, err := store.List(f)
	if all == nil {
		return nil, err
	}
	list := make([]chat.Archive, len(all))
	for i, a := range all {
		list[i] = a.Archive
	}
	if err != nil && chat.CallerFrom(ctx).Role == chat.RoleOperator {
		// It is logged, which no bridge may repeat.
		k.trail.Report(aboutArchives, err)
	}
	return list, nil
}

const aboutArchives = "the archives"

// reachArchive returns an archive of the caller's, or of anybody's for an operator.
func (k *archiver) reachArchive(
	ctx context.Context, name chat.ArchiveName,
) (*archives.Store, archives.Manifest, error) {
	store, err := k.open()
	if err != nil {
		return nil, archives.Manifest{}, err
	}
	a, err := store.Get(name)
	if errors.Is(err, chat.ErrInvalid) && chat.CallerFrom(ctx).Role != chat.RoleOperator {
		// Nobody knows whose it is.
		err = fmt.Errorf("cannot find archive %s: %w", name, chat.ErrNotFound)
	}
	if err == nil && !chat.CallerFrom(ctx).MayReach(a.Owner) {
		err = errors.Join(
			k.trail.Write(ctx, state.Record{ID: a.Chat}, "reach", "denied", archiveDetail(name)),
			fmt.Errorf("cannot find archive %s: %w", name, chat.ErrNotFound))
	}
	return store, a, err
}

func archiveDetail(name chat.ArchiveName) map[string]string {
	return map[string]string{"archive": string(name)}
}

// VerifyArchive reads an archive and compares its hashes with those of when it was checked.
func (k *archiver) VerifyArchive(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error) {
	store, a, err := k.reachArchive(ctx, name)
	if err != nil {
		return chat.ArchiveCheck{}, err
	}
	leave, err := k.takeTurn(ctx, a.Chat, a.Owner, "verify")
	if err != nil {
		return chat.ArchiveCheck{}, err
	}
	defer leave()
	return store.Verify(ctx, name)
}

// RemoveArchive removes an archive, once no chat is made of it. An operator removes one that cannot
// be used too.
func (k *archiver) RemoveArchive(ctx context.Context, name chat.ArchiveName) error {
	store, _, err := k.reachArchive(ctx, name)
	if err != nil && !errors.Is(err, chat.ErrInvalid) {
		return err
	}
	unlock, err := k.chats.locks.Lock(ctx, name.ID())
	if err != nil {
		return err
	}
	defer unlock()
	rec := state.Record{ID: name.ID()}
	return k.trail.Around(ctx, rec, "remove_archive", archiveDetail(name), func() error {
		return store.Remove(name)
	})
}

// Backup is [state.Store.Backup], for an operator.
func (m *Manager) Backup(ctx context.Context) (b chat.Backup, err error) {
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return b, fmt.Errorf("cannot back up: the archive has the install key, and is for operators: %w",
			chat.ErrDenied)
	}
	err = m.trail.Around(ctx, state.Record{}, "backup", nil, func() (err error) {
		b, err = m.store.Backup(ctx)
		return
	})
	return b, err
}

// taskPlace is where a command of chatd-archive runs.
type taskPlace struct {
	// group names its cgroup or unit, which it has for itself.
	group  chat.ID
	limits chat.Limits
	spec   session.Spec
	// wait is called once the command may begin.
	wait func(context.Context, *archives.Process) (archives.Result, error)
}

// runTask does a command of chatd-archive in a one-shot session, which sees the chat's home and
// nothing that its profile exposes, has no network, and is not under the chat's file rules: they
// are not for what is kept of the home.
func (k *archiver) runTask(
	ctx context.Context, rec subject, doing string, task archives.Task, in taskPlace,
) (r archives.Result, err error) {
	grouped := subject{Record: state.Record{ID: in.group, UID: rec.UID}}
	defer func() {
		err = errors.Join(err, k.removeLimits(context.WithoutCancel(ctx), grouped))
	}()
	if err := k.groups.Create(in.group, in.limits); err != nil {
		return r, err
	}
	task.Progress = func(entries, bytes int64) {
		p := chat.ArchiveProgress{Entries: entries, Bytes: bytes, Doing: doing}
		k.archive.SetProgress(rec.ID, &p)
	}
	task.Progress(0, 0)
	in.spec.Chat = in.group
	var b session.Files
	defer b.Close()
	cmd := k.starter.Bubblewrap(in.spec, &b)
	p, err := task.Start(cmd, &b, func() error { return k.starter.Launch(in.spec, cmd, &b) })
	if err != nil {
		return r, errors.Join(err, k.starter.Abandon(in.group, rec.UID, nil))
	}
	defer p.Close()
	init, err := b.AwaitInit(ctx, session.StartTimeout)
	if err == nil {
		err = k.groups.LimitCPU(in.group, in.limits)
	}
	if err == nil {
		r, err = in.wait(ctx, p)
	}
	if err != nil {
		if h, herr := k.groups.hits(in.group); herr == nil {
			err = fmt.Errorf("%w%s", err, outOfMemory(rec.profile.Limits, h.OOMKills))
		}
	}
	err = errors.Join(err, k.starter.Abandon(in.group, rec.UID, init))
	<-p.Ended()
	return r, err
}

// do returns what does commands of chatd-archive for a sleeping chat. The caller holds the chat's lock
// and a place among the awake.
func (k *archiver) do(rec subject) archives.Do {
	return func(ctx context.Context, doing string, t archives.Task) (archives.Result, error) {
		if err := k.clear(ctx, rec); err != nil {
			return archives.Result{}, err
		}
		wait := func(ctx context.Context, p *archives.Process) (archives.Result, error) { return p.Wait(ctx) }
		in := taskPlace{group: rec.ID, limits: rec.profile.Limits, spec: k.taskSpec(rec, t), wait: wait}
		return k.runTask(ctx, rec, doing, t, in)
	}
}

// archiveFiles is how many files chatd-archive may have open: one for each level of a tree.
const archiveFiles = 1024

// taskSpec is the session of a command of chatd-archive.
func (k *archiver) taskSpec(rec subject, task archives.Task) session.Spec {
	c := k.mounts.viewer(rec)
	c.Denied, c.Secrets, c.OwnTrust, c.Network = nil, nil, false, chat.NetworkOwn
	v := k.mounts.views.Of(c)
	v.Etc, v.PromptFIFO, v.PolicyDir, v.Archive = plan.ReadEtc(), "", "", k.dirs.archive
	return session.Spec{
		Chat: rec.ID, View: v, Argv: task.Argv(),
		Limits: chat.ProcessLimits{NoFile: archiveFiles}, // of a file's size the quota is the bound
	}
}

// maxArchiveKeys bounds a file of recipients or identities, in bytes.
const maxArchiveKeys = 64 << 10

// keys reads a file of recipients or identities; "" is none.
func (k *archiver) keys(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := safefs.ReadPrivate(file, maxArchiveKeys)
	if err != nil {
		return "", fmt.Errorf("cannot use the keys of archives: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 || bytes.IndexByte(text, 0) >= 0 {
		return "", chat.Invalid("cannot use the keys of archives: %s has none", chat.Quote(file))
	}
	return string(text), nil
}

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
