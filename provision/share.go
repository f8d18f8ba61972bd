package provision

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/state"
)

// ShareFile has talk copy one regular file from the chat to another of the same caller: read
// as the one and by its rules, written as the other and by its rules. It is the
// only way across. Of a copy that fails nothing is left.
func (m *Manager) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk files.Talk) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.To == id {
		return fmt.Errorf("cannot share with chat %s: it is the same: %w", id, chat.ErrInvalid)
	}
	from, err := m.reach(ctx, id)
	if err != nil {
		return err
	}
	to, err := m.reach(ctx, s.To)
	if err != nil {
		return err
	}
	sh := newSharing(m, from, to, s, talk)
	if err := errors.Join(m.allowFirst(ctx, from, sh.read), m.allowFirst(ctx, to, sh.write)); err != nil {
		return err
	}
	if err := sh.audit(ctx, "intent", nil); err != nil {
		return err
	}
	copied, err := sh.copy(ctx)
	m.touch(from)
	m.touch(to)
	auditErr := sh.auditEnd(ctx, copied, err)
	return errors.Join(sh.told(ctx, err), auditErr)
}

// sharing is one copy: two calls, and talk copies between them.
type sharing struct {
	m           *Manager
	from, to    state.Record
	read, write *fileCall
	share       chat.Share
}

func newSharing(m *Manager, from, to state.Record, s chat.Share, talk files.Talk) *sharing {
	sh := &sharing{m: m, from: from, to: to, share: s}
	sh.read = newFileCall(files.ReadFileTool, files.ReadFile{Path: s.Path, Stream: true}, talk)
	sh.write = newFileCall(files.WriteFileTool, files.WriteFile{Path: s.Target(), Stream: true}, talk)
	return sh
}

// copy does the two calls, that of the chat with the lower id around the other:
// each may hold the lock of its chat, and another copy may go the other way. It returns what
// talk says that it copied.
func (sh *sharing) copy(ctx context.Context) (files.Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var read files.Answer
	var readErr, writeErr error
	first, outer, inner := sh.read, func() {
		if read, readErr = sh.m.callTool(ctx, sh.from, sh.read); readErr != nil {
			cancel(errOtherSide)
		}
	}, func() {
		if _, writeErr = sh.m.callTool(ctx, sh.to, sh.write); writeErr != nil {
			cancel(errOtherSide)
		}
	}
	if sh.from.ID > sh.to.ID {
		first, outer, inner = sh.write, inner, outer
	}
	var within sync.WaitGroup
	talk := first.talk
	first.talk = func(ctx context.Context, t files.Started) (files.Answer, error) {
		within.Go(inner)
		return talk(ctx, t)
	}
	outer()
	within.Wait()
	return read, sh.failure(readErr, writeErr)
}

// errOtherSide ends one call because the other failed.
var errOtherSide = errors.New("the other side of the copy ended")

// failure is the side's error that was first, not what it made of the other. A read whose content
// nobody takes is the other's.
func (sh *sharing) failure(readErr, writeErr error) error {
	var untaken *files.BodyError
	if readErr != nil && !errors.Is(readErr, errOtherSide) && !errors.As(readErr, &untaken) {
		return fmt.Errorf("cannot read from chat %s: %w", sh.from.ID, readErr)
	}
	if writeErr != nil {
		return fmt.Errorf("cannot write to chat %s: %w", sh.to.ID, writeErr)
	}
	return readErr
}

// audit writes what happens to either chat, under its own name.
func (sh *sharing) audit(ctx context.Context, outcome string, more map[string]string) error {
	detail := func(other string, id chat.ID) map[string]string {
		d := map[string]string{other: string(id), "path": auditText(sh.share.Path), "to_path": auditText(sh.share.Target())}
		for k, v := range more {
			d[k] = v
		}
		return d
	}
	return errors.Join(
		sh.m.audit(ctx, sh.from, "share", outcome, detail("to", sh.to.ID)),
		sh.m.audit(ctx, sh.to, "share", outcome, detail("from", sh.from.ID)))
}

// auditEnd writes how it ended. What was copied is the front's word.
func (sh *sharing) auditEnd(ctx context.Context, out files.Answer, err error) error {
	if err == nil {
		return sh.audit(ctx, "done", map[string]string{"sha256": out.SHA256, "bytes": strconv.FormatInt(out.Bytes, 10)})
	}
	failed := sh.audit(ctx, "failed", map[string]string{"error": err.Error()})
	var d *files.Denial
	if !errors.As(err, &d) {
		return failed
	}
	return errors.Join(failed, sh.m.auditDenial(ctx, sh.side(d), err))
}

// side is the chat whose rules deny.
func (sh *sharing) side(d *files.Denial) state.Record {
	if d.Op == files.Read {
		return sh.from
	}
	return sh.to
}

func (sh *sharing) told(ctx context.Context, err error) error {
	var d *files.Denial
	if !errors.As(err, &d) {
		return err
	}
	return sh.m.told(ctx, sh.side(d), err)
}
