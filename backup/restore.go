package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// RestoreOptions say where a state is restored to.
type RestoreOptions struct {
	// State is the state directory; it is made if it does not exist.
	State string
	// UIDs is the host's range for chats.
	UIDs state.Range
	// Replace moves a state that is there aside; without it, it is an error.
	Replace bool
	// LastUID is the highest uid that was ever given, where the operator knows it; 0 where not.
	LastUID uint32
	// Traces are uids that something on this host has, besides the state directory.
	Traces []uint32
	// By is the caller who restores.
	By chat.Caller
}

// Restored is what a restore did.
type Restored struct {
	Manifest Manifest `json:"manifest"`
	// Aside is the directory of the former state; empty if there was none.
	Aside string `json:"aside,omitempty"`
	// FirstUID is the lowest uid that may be given from now on, and Exact whether uids are known
	// not to have been given since the backup; otherwise half of the range was left out.
	FirstUID uint32 `json:"first_uid"`
	Exact    bool   `json:"exact"`
}

// Restore puts the state of a backup in place. All of it is read and verified before anything in
// the state directory changes, and a restore that was decided is completed, by the next start of
// chatd if need be. Homes are not touched.
//
// A chat that was reaped since the backup is there again, with its uid; one that was made since is
// not. No uid that was given since is given again ([state.Floor]).
func Restore(ctx context.Context, in io.Reader, o RestoreOptions) (out Restored, err error) {
	r, err := state.BeginRestore(o.State, o.Replace)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if out.Manifest, err = unpack(ctx, in, r); err != nil {
		return out, err
	}
	known, err := r.KnownUIDs(o.UIDs)
	if err != nil {
		return out, fmt.Errorf("cannot tell which uids were given since the backup: %w", err)
	}
	for _, uid := range o.Traces {
		if o.UIDs.Contains(uid) && uid != o.UIDs.High {
			known = known.With(uid + 1)
		}
	}
	if out.FirstUID, err = state.Floor(known, o.UIDs, o.LastUID); err != nil {
		return out, err
	}
	out.Exact = known.Whole || o.LastUID != 0
	if err := adopt(r, o, out); err != nil {
		return out, err
	}
	if ctx.Err() != nil { // the last moment: what is decided is completed
		return out, fmt.Errorf("cannot restore: nothing was changed: %w", context.Cause(ctx))
	}
	out.Aside, err = r.Put()
	return out, err
}

// unpack reads a whole backup into the draft, and verifies it as a state and against its manifest.
func unpack(ctx context.Context, in io.Reader, r *state.Restore) (Manifest, error) {
	a, err := open(interruptible{ctx, in})
	if err != nil {
		return Manifest{}, err
	}
	m := a.Manifest
	if m.State != state.Version {
		return m, fmt.Errorf("cannot restore a state of version %d, which chatd %s wrote: this chatd "+
			"knows version %d alone: restore it with that chatd: %w",
			m.State, chat.Quote(m.Chatd), state.Version, chat.ErrUnsupported)
	}
	if err := r.Room(m.size()); err != nil {
		return m, err
	}
	if err := a.unpack(r.Draft()); err != nil {
		return m, err
	}
	s, err := r.Verify(ctx)
	if err != nil {
		return m, fmt.Errorf("cannot use the backup: %w", err)
	}
	if s.Version != m.State || s.Chats != m.Chats || s.Given != m.Given || s.Seq != m.AuditSeq ||
		s.Hash != m.AuditHash {
		return m, fmt.Errorf("cannot use the backup: its state is not the one that its manifest describes: %w",
			chat.ErrInvalid)
	}
	return m, nil
}

func adopt(r *state.Restore, o RestoreOptions, out Restored) error {
	by := state.Event{Action: "restore", Outcome: "done", Caller: o.By, Detail: map[string]string{
		"backup": out.Manifest.At.Format(time.RFC3339), "chatd": out.Manifest.Chatd,
		"first_uid": strconv.FormatUint(uint64(out.FirstUID), 10), "exact": strconv.FormatBool(out.Exact)}}
	err := r.Adopt(state.Options{UIDs: o.UIDs, BlockSize: o.UIDs.BlockSize()}, out.FirstUID, by)
	if errors.Is(err, chat.ErrBusy) {
		err = fmt.Errorf("%w: the range %s has too few uids that were surely never given: say the last that was with --last-uid, or set uids to a wider range",
			err, o.UIDs)
	}
	if err != nil {
		return fmt.Errorf("cannot restore: %w", err)
	}
	return nil
}

// Read reads and verifies a backup without a state directory, and returns what it holds.
func Read(ctx context.Context, in io.Reader) (m Manifest, err error) {
	dir, err := os.MkdirTemp("", "chatd-restore-")
	if err != nil {
		return m, fmt.Errorf("cannot make room for the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, err := state.BeginRestore(dir, false)
	if err != nil {
		return m, err
	}
	m, err = unpack(ctx, in, r)
	return m, errors.Join(err, r.Close())
}
