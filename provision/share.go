package provision

import (
	"context"
	"errors"
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
		return chat.Invalid("cannot share with chat %s: it is the same", id)
	}
	from, err := rs.chats.reach(ctx, id)
	if err != nil {
		return err
	}
	to, err := rs.chats.reach(ctx, s.To)
	if err != nil {
		return err
	}
	c := filecall.NewCopy(from.ID, s, talk)
	if err := errors.Join(rs.allowFirst(ctx, from, c.Read), rs.allowFirst(ctx, to, c.Write)); err != nil {
		return err
	}
	if err := rs.auditShare(ctx, from, to, s, "intent", nil); err != nil {
		return err
	}
	copied, err := c.Do(ctx, func(ctx context.Context, call *filecall.Call) (filewire.Answer, error) {
		if call == c.Write {
			return rs.call(ctx, to, call)
		}
		return rs.call(ctx, from, call)
	})
	rs.chats.touch(from.ID)
	rs.chats.touch(to.ID)
	if err == nil { // the front reports what was copied, unverified
		return rs.auditShare(ctx, from, to, s, "done",
			map[string]string{"sha256": copied.SHA256, "bytes": strconv.FormatInt(copied.Bytes, 10)})
	}
	auditErr := rs.auditShare(ctx, from, to, s, "failed", map[string]string{"error": err.Error()})
	if d, denied := errors.AsType[*filewire.Denial](err); denied {
		side := to // whose rules deny
		if d.Op == filewire.Read {
			side = from
		}
		auditErr = errors.Join(auditErr, rs.trail.DeniedFile(ctx, side.Record, err))
		err = rs.policy.Redact(ctx, side.Profile, err)
	}
	return errors.Join(err, auditErr)
}

// auditShare writes what happens to either chat, under its own name.
func (rs *runner) auditShare(
	ctx context.Context, from, to subject, s chat.Share, outcome string, more map[string]string,
) error {
	write := func(of subject, key string, other subject) error {
		d := map[string]string{key: string(other.ID), "path": chat.QuotePath(s.Path),
			"to_path": chat.QuotePath(s.Target())}
		maps.Copy(d, more)
		return rs.trail.Write(ctx, of.Record, "share", outcome, d)
	}
	return errors.Join(write(from, "to", to), write(to, "from", from))
}
