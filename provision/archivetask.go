package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// archiveTask does a command of chatd-archive for a sleeping chat. The caller holds the chat's lock
// and a place among the awake.
func (m *Manager) archiveTask(
	ctx context.Context, rec state.Record, doing string, task archives.Task,
) (archives.Result, error) {
	if err := m.clearSession(ctx, rec); err != nil {
		return archives.Result{}, err
	}
	return m.runTask(ctx, rec, doing, task, taskPlace{
		group: rec.ID, limits: m.profile(rec).Limits, spec: m.archiveSpec(rec, task),
		wait: func(ctx context.Context, p *archives.Process) (archives.Result, error) {
			return p.Wait(ctx)
		},
	})
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
func (m *Manager) runTask(
	ctx context.Context, rec state.Record, doing string, task archives.Task, in taskPlace,
) (r archives.Result, err error) {
	grouped := state.Record{ID: in.group, UID: rec.UID}
	defer func() {
		err = errors.Join(err, m.removeLimits(context.WithoutCancel(ctx), grouped))
	}()
	if err := m.groups.Create(in.group, in.limits); err != nil {
		return r, err
	}
	task.Progress = func(entries, bytes int64) {
		p := chat.ArchiveProgress{Entries: entries, Bytes: bytes, Doing: doing}
		m.archive.progress(rec.ID, &p)
	}
	task.Progress(0, 0)
	in.spec.Chat = in.group
	var b session.Files
	defer b.Close()
	cmd := m.starter.Bubblewrap(in.spec, &b)
	p, err := task.Start(cmd, &b, func() error { return m.starter.Launch(in.spec, cmd, &b) })
	if err != nil {
		return r, errors.Join(err, m.starter.Abandon(in.group, rec.UID, nil))
	}
	defer p.Close()
	init, err := b.AwaitInit(ctx, session.StartTimeout)
	if err == nil {
		err = m.groups.LimitCPU(in.group, in.limits)
	}
	if err == nil {
		r, err = in.wait(ctx, p)
	}
	if err != nil {
		if h, herr := m.hits(in.group); herr == nil {
			err = fmt.Errorf("%w%s", err, m.outOfMemory(rec, h.OOMKills))
		}
	}
	err = errors.Join(err, m.starter.Abandon(in.group, rec.UID, init))
	<-p.Ended()
	return r, err
}

// archiveDo is archiveTask for one chat.
func (m *Manager) archiveDo(rec state.Record) archives.Do {
	return func(ctx context.Context, doing string, t archives.Task) (archives.Result, error) {
		return m.archiveTask(ctx, rec, doing, t)
	}
}

// archiveFiles is how many files chatd-archive may have open: one for each level of a tree.
const archiveFiles = 1024

// archiveSpec is the session of a command of chatd-archive.
func (m *Manager) archiveSpec(rec state.Record, task archives.Task) session.Spec {
	c := m.viewer(rec)
	c.Denied, c.Secrets, c.OwnTrust, c.Network = nil, nil, false, chat.NetworkOwn
	v := m.views.Of(c)
	v.Etc, v.PromptFIFO, v.PolicyDir, v.Archive = plan.ReadEtc(), "", "", m.paths.archive
	return session.Spec{
		Chat: rec.ID, View: v, Argv: task.Argv(),
		Limits: chat.ProcessLimits{NoFile: archiveFiles}, // of a file's size the quota is the bound
	}
}

// maxArchiveKeys bounds a file of recipients or identities, in bytes.
const maxArchiveKeys = 64 << 10

// archiveKeys reads a file of recipients or identities; "" is none.
func (m *Manager) archiveKeys(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := safefs.ReadPrivate(file, maxArchiveKeys)
	if err != nil {
		return "", fmt.Errorf("cannot use the keys of archives: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 || bytes.IndexByte(text, 0) >= 0 {
		return "", fmt.Errorf("cannot use the keys of archives: %s has none: %w",
			chat.Quote(file), chat.ErrInvalid)
	}
	return string(text), nil
}
