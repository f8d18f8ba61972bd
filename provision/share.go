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
)

// ShareFile calls talk to copy one regular file from the chat to another of the same caller. It is
// read as the one and by its rules, and written as the other and by its rules. It is the only way
// across. Of a copy that fails nothing is left.
func (rs *runner) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk filewire.Talk) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.To == id {
		return fmt.Errorf("cannot share with chat %s: it is the same: %w", id, chat.ErrInvalid)
	}
	from, err := rs.chats.reach(ctx, id)
	if err != nil {
		return err
	}
	to, err := rs.chats.reach(ctx, s.To)
	if err != nil {
		return err
	}
	sh := &sharing{filecall.NewCopy(from.ID, s, talk), rs, from, to, s}
	if err := errors.Join(rs.allowFirst(ctx, from, sh.Read), rs.allowFirst(ctx, to, sh.Write)); err != nil {
		return err
	}
	if err := sh.audit(ctx, "intent", nil); err != nil {
		return err
	}
	copied, err := sh.Do(ctx, func(ctx context.Context, c *filecall.Call) (filewire.Answer, error) {
		if c == sh.Write {
			return rs.call(ctx, to, c)
		}
		return rs.call(ctx, from, c)
	})
	rs.chats.touch(from.ID)
	rs.chats.touch(to.ID)
	auditErr := sh.auditEnd(ctx, copied, err)
	var d *filewire.Denial
	if errors.As(err, &d) {
		err = rs.policy.Redact(ctx, sh.side(d).Profile, err)
	}
	return errors.Join(err, auditErr)
}

// sharing is one copy and its two chats.
type sharing struct {
	*filecall.Copy
	m        *runner
	from, to subject
	share    chat.Share
}

// audit writes what happens to either chat, under its own name.
func (sh *sharing) audit(ctx context.Context, outcome string, more map[string]string) error {
	detail := func(other string, id chat.ID) map[string]string {
		d := map[string]string{other: string(id), "path": chat.QuotePath(sh.share.Path),
			"to_path": chat.QuotePath(sh.share.Target())}
		maps.Copy(d, more)
		return d
	}
	return errors.Join(
		sh.m.trail.Write(ctx, sh.from.Record, "share", outcome, detail("to", sh.to.ID)),
		sh.m.trail.Write(ctx, sh.to.Record, "share", outcome, detail("from", sh.from.ID)))
}

// auditEnd writes how it ended. The front reports what was copied, unverified.
func (sh *sharing) auditEnd(ctx context.Context, out filewire.Answer, err error) error {
	if err == nil {
		return sh.audit(ctx, "done",
			map[string]string{"sha256": out.SHA256, "bytes": strconv.FormatInt(out.Bytes, 10)})
	}
	failed := sh.audit(ctx, "failed", map[string]string{"error": err.Error()})
	var d *filewire.Denial
	if !errors.As(err, &d) {
		return failed
	}
	return errors.Join(failed, sh.m.trail.DeniedFile(ctx, sh.side(d).Record, err))
}

// side is the chat whose rules deny.
func (sh *sharing) side(d *filewire.Denial) subject {
	if d.Op == filewire.Read {
		return sh.from
	}
	return sh.to
}
