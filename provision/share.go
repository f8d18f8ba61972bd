package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/state"
)

// ShareFile calls talk to copy one regular file from the chat to another of the same caller. It is
// read as the one and by its rules, and written as the other and by its rules. It is the only way
// across. Of a copy that fails nothing is left.
func (m *Manager) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk filewire.Talk) error {
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
	sh := &sharing{filecall.NewCopy(from.ID, s, talk), m, from, to, s}
	if err := errors.Join(m.allowFirst(ctx, from, sh.Read), m.allowFirst(ctx, to, sh.Write)); err != nil {
		return err
	}
	if err := sh.audit(ctx, "intent", nil); err != nil {
		return err
	}
	copied, err := sh.copy(ctx)
	m.touch(from)
	m.touch(to)
	auditErr := sh.auditEnd(ctx, copied, err)
	return errors.Join(sh.redact(ctx, err), auditErr)
}

// sharing is one copy and its two chats.
type sharing struct {
	*filecall.Copy
	m        *Manager
	from, to state.Record
	share    chat.Share
}

// copy does the two calls, each in its chat.
func (sh *sharing) copy(ctx context.Context) (filewire.Answer, error) {
	return sh.Do(ctx, func(ctx context.Context, c *filecall.Call) (filewire.Answer, error) {
		if c == sh.Write {
			return sh.m.callTool(ctx, sh.to, c)
		}
		return sh.m.callTool(ctx, sh.from, c)
	})
}

// audit writes what happens to either chat, under its own name.
func (sh *sharing) audit(ctx context.Context, outcome string, more map[string]string) error {
	detail := func(other string, id chat.ID) map[string]string {
		d := map[string]string{other: string(id), "path": chat.QuotePath(sh.share.Path), "to_path": chat.QuotePath(sh.share.Target())}
		maps.Copy(d, more)
		return d
	}
	return errors.Join(
		sh.m.audit(ctx, sh.from, "share", outcome, detail("to", sh.to.ID)),
		sh.m.audit(ctx, sh.to, "share", outcome, detail("from", sh.from.ID)))
}

// auditEnd writes how it ended. The front reports what was copied, unverified.
func (sh *sharing) auditEnd(ctx context.Context, out filewire.Answer, err error) error {
	if err == nil {
		return sh.audit(ctx, "done", map[string]string{"sha256": out.SHA256, "bytes": strconv.FormatInt(out.Bytes, 10)})
	}
	failed := sh.audit(ctx, "failed", map[string]string{"error": err.Error()})
	var d *filewire.Denial
	if !errors.As(err, &d) {
		return failed
	}
	return errors.Join(failed, sh.m.auditDenial(ctx, sh.side(d), err))
}

// side is the chat whose rules deny.
func (sh *sharing) side(d *filewire.Denial) state.Record {
	if d.Op == filewire.Read {
		return sh.from
	}
	return sh.to
}

func (sh *sharing) redact(ctx context.Context, err error) error {
	var d *filewire.Denial
	if !errors.As(err, &d) {
		return err
	}
	return sh.m.policy.Redact(ctx, sh.side(d).Profile, err)
}
