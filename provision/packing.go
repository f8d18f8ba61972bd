package provision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/chatd/chatd/archiver"
	"github.com/chatd/chatd/archives"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/session"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/trees"
)

// packing is an archive of a chat that is being written. The caller holds the chat's lock.
type packing struct {
	m          *Manager
	rec        state.Record
	draft      *archives.Draft
	recipients string // of age, one a line; empty is in clear
}

// errDiffers is the error of an archive that is not what was archived.
var errDiffers = fmt.Errorf("what was written is not what was read: %w", chat.ErrConflict)

// home packs the home and checks what was written.
func (p packing) home(ctx context.Context) (archiver.Result, error) {
	packed, err := p.m.archiveTask(ctx, p.rec, "packing", archiver.Task{
		Args: append(p.to("pack"), p.m.home(p.rec.ID)), In: strings.NewReader(p.recipients),
		Out: func(in io.Reader) error { return p.draft.Write(archives.Home, in) },
	})
	if err != nil {
		return packed, err
	}
	checked, err := p.read(ctx, archives.Home, "check", packed.CheckIdentity, nil)
	if err == nil && (checked.SHA256 != packed.SHA256 || checked.Entries != packed.Entries ||
		checked.Bytes != packed.Bytes) {
		err = errDiffers
	}
	p.draft.Describe(archives.Home, packed.SHA256)
	return packed, err
}

// rest seals the rest of the chat and checks what was written.
func (p packing) rest(ctx context.Context) error {
	text, err := p.m.sealedPart(p.rec)
	if err != nil {
		return err
	}
	in := io.Reader(bytes.NewReader(text))
	if p.recipients != "" {
		in = io.MultiReader(strings.NewReader(p.recipients+"\x00"), in)
	}
	sealed, err := p.m.archiveTask(ctx, p.rec, "packing", archiver.Task{
		Args: p.to("seal"), In: in,
		Out: func(in io.Reader) error { return p.draft.Write(archives.Chat, in) },
	})
	if err != nil {
		return err
	}
	var again bytes.Buffer
	_, err = p.read(ctx, archives.Chat, "open", sealed.CheckIdentity, func(in io.Reader) error {
		_, err := io.Copy(&again, io.LimitReader(in, maxSealed+1))
		return err
	})
	if err == nil && !bytes.Equal(again.Bytes(), text) {
		err = errDiffers
	}
	p.draft.Describe(archives.Chat, hashOf(text))
	return err
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// to is a command that writes to the recipients.
func (p packing) to(verb string) []string {
	if p.recipients == "" {
		return []string{verb}
	}
	return []string{verb, "--recipients", "-", "--check-key"}
}

// read reads a part that was written, by the identity of its check.
func (p packing) read(
	ctx context.Context, part archives.Part, verb, identity string, out func(io.Reader) error,
) (r archiver.Result, err error) {
	f, err := p.draft.Read(part)
	if err != nil {
		return r, err
	}
	args, in := from(verb, identity, f)
	r, err = p.m.archiveTask(ctx, p.rec, "checking", archiver.Task{Args: args, In: in, Out: out})
	return r, errors.Join(err, f.Close())
}

// from is a command that reads in, by the identities.
func from(verb, identities string, in io.Reader) ([]string, io.Reader) {
	if identities == "" {
		return []string{verb}, in
	}
	return []string{verb, "--identities", "-"},
		io.MultiReader(strings.NewReader(identities+"\x00"), in)
}

// archiveTask does a command of chatd-archive in a one-shot session, which sees the chat's home and
// nothing that its profile exposes, has no network, and is not under the chat's file rules: they
// are not for what is kept of the home. The caller holds the chat's lock and a place among the
// awake.
func (m *Manager) archiveTask(
	ctx context.Context, rec state.Record, doing string, task archiver.Task,
) (r archiver.Result, err error) {
	if err := m.clearSession(ctx, rec); err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, m.removeLimits(context.WithoutCancel(ctx), rec))
	}()
	if err := m.createLimits(ctx, rec); err != nil {
		return r, err
	}
	task.Progress = func(entries, bytes int64) {
		m.archive.progress(rec.ID, &chat.ArchiveProgress{Entries: entries, Bytes: bytes, Doing: doing})
	}
	task.Progress(0, 0)
	var b session.Files
	defer b.Close()
	spec := m.archiveSpec(rec, task)
	cmd := m.starter.Bubblewrap(spec, &b)
	p, err := task.Start(cmd, &b, func() error { return m.starter.Launch(spec, cmd, &b) })
	if err != nil {
		return r, errors.Join(err, m.starter.Abandon(rec.ID, rec.UID, nil))
	}
	defer p.Close()
	init, err := b.AwaitInit(ctx, session.StartTimeout)
	if err == nil {
		err = m.groups.LimitCPU(rec.ID, m.profile(rec).Limits)
	}
	if err == nil {
		r, err = p.Wait(ctx)
	}
	err = errors.Join(err, m.starter.Abandon(rec.ID, rec.UID, init))
	<-p.Ended()
	return r, err
}

// archiveFiles is how many files chatd-archive may have open: one for each level of a tree.
const archiveFiles = 1024

// archiveSpec is the session of a command of chatd-archive.
func (m *Manager) archiveSpec(rec state.Record, task archiver.Task) session.Spec {
	c := m.viewer(rec)
	c.Denied, c.Secrets, c.OwnTrust, c.Network = nil, nil, false, chat.NetworkOwn
	v := m.views.Of(c)
	v.Etc, v.PromptFIFO, v.PolicyDir, v.Archive = shims.ReadEtc(), "", "", m.paths.archive
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
	text, err := trees.ReadPrivate(file, maxArchiveKeys)
	if err != nil {
		return "", fmt.Errorf("cannot use the keys of archives: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 || bytes.IndexByte(text, 0) >= 0 {
		return "", fmt.Errorf("cannot use the keys of archives: %s has none: %w",
			chat.Quote(file), chat.ErrInvalid)
	}
	return string(text), nil
}
