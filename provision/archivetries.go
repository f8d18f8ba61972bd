package provision

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// An unarchive that fails has cost a uid, and a bridge asks again with every message. What cannot be
// read is read as the chat, and so can only be known by a try: this file makes the first the last.

// damaged is kept of an archive whose bytes were not those of its manifest.
const damaged = ""

// checkTried refuses an archive that could not be read before: while it is damaged, and with the
// same identities.
func (u *unpacking) checkTried(ctx context.Context) error {
	u.m.archive.mu.Lock()
	with, tried := u.m.archive.tried[u.Archive.Name]
	u.m.archive.mu.Unlock()
	if !tried {
		return nil
	}
	if _, err := u.Store.Verify(ctx, u.Archive.Name); err != nil {
		return err
	}
	if u.Archive.Encrypted && with == u.identity() {
		return fmt.Errorf("cannot unarchive %s: it is whole, and the identities of "+
			"archive.identities did not read it before: %w", u.Archive.Name, chat.ErrInvalid)
	}
	return nil
}

// keepTried keeps that an archive could not be read, if err says that. After other errors the next
// try may succeed.
func (u *unpacking) keepTried(ctx context.Context, err error) {
	if !errors.Is(err, chat.ErrInvalid) {
		return
	}
	with := u.identity()
	if _, err := u.Store.Verify(ctx, u.Archive.Name); err != nil {
		with = damaged
	}
	u.m.archive.mu.Lock()
	defer u.m.archive.mu.Unlock()
	if u.m.archive.tried == nil {
		u.m.archive.tried = map[chat.ArchiveName]string{}
	}
	u.m.archive.tried[u.Archive.Name] = with
}

// identity is a digest of the identities that are used.
func (u *unpacking) identity() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(u.Identities)))
}

// latest is the latest time that the records know of: it is over, whatever the clock says.
func latest(all []state.Record) (at time.Time) {
	for _, rec := range all {
		for _, t := range []time.Time{rec.CreatedAt, rec.UsedAt} {
			if t.After(at) {
				at = t
			}
		}
	}
	return at
}
