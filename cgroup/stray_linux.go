package cgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// Quarantine freezes every unit of the slice that is not of a known chat, and returns their names.
// Its creator is inside the chats' walls or wants to look like it, and it may be somebody's work. A
// frozen unit does nothing and loses nothing; an operator looks at it (systemctl status) and thaws
// or stops it.
func (u *Units) Quarantine(ctx context.Context, known func(chat.ID) bool) ([]string, error) {
	names, err := cgroupfs.Below(u.bases.Unified)
	names = slices.DeleteFunc(names, func(name string) bool { return u.isOwn(name, known) })
	for _, name := range names {
		err = errors.Join(err, u.freeze(ctx, name))
	}
	return names, err
}

// Quarantine finds nobody: below a base that only root of this daemon enters,
// there are the trees of chats.
func (f *FS) Quarantine(context.Context, func(chat.ID) bool) ([]string, error) { return nil, nil }

func (u *Units) isOwn(unit string, known func(chat.ID) bool) bool {
	if strings.HasPrefix(unit, u.o.Name+"-"+probePrefix) {
		return true
	}
	id, ok := u.idOf(unit)
	return ok && known(id)
}

// freeze asks systemd, so that its status says frozen, unless it did already.
func (u *Units) freeze(ctx context.Context, unit string) error {
	frozen, err := cgroupfs.ReadFlat(u.bases.Unified+"/"+unit, "cgroup.events", "frozen")
	if frozen != 0 || errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	if err := u.bus.Freeze(ctx, unit); err != nil && !errors.Is(err, chat.ErrNotFound) {
		return fmt.Errorf("cannot freeze unit %s: %w", unit, err)
	}
	return nil
}

// endProbes ends the units of probes that a crash left.
func (u *Units) endProbes(ctx context.Context) error {
	names, err := cgroupfs.Below(u.bases.Unified)
	for _, name := range names {
		id, ok := strings.CutPrefix(strings.TrimSuffix(name, unitSuffix), u.o.Name+"-")
		if ok && strings.HasPrefix(id, probePrefix) && checkID(chat.ID(id)) == nil {
			err = errors.Join(err, u.FS.Kill(ctx, chat.ID(id)), u.stop(ctx, chat.ID(id)))
		}
	}
	return err
}
