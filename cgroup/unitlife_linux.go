package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
)

// unitName is the service of a chat: chatd-<id>.service.
func unitName(name string, id chat.ID) string { return name + "-" + string(id) + unitSuffix }

// Create keeps the limits for [Units.Start], which makes the unit: a service has
// no cgroup before its first process. A unit that lives is limited again.
func (u *Units) Create(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	u.keepLimits(id, l)
	if full, err := cgroupfs.Populated(u.dir(id)); err != nil || !full {
		return skipNotFound(err)
	}
	return u.Limit(id, l)
}

func skipNotFound(err error) error {
	if errors.Is(err, chat.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Limit sets all limits of a chat that is awake, and makes systemd remember them:
// a daemon-reload writes what systemd remembers.
func (u *Units) Limit(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	props := u.properties(id, l, isAny)
	return errors.Join(u.remember(id, props), u.FS.Limit(id, l))
}

// LimitCPU sets the CPU quota, and nothing else; see [FS.LimitCPU].
func (u *Units) LimitCPU(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	return u.limitUnitCPU(id, l)
}

// limitUnitCPU also writes the quota itself: systemd does so a moment after it
// answered.
func (u *Units) limitUnitCPU(id chat.ID, l chat.Limits) error {
	if err := u.remember(id, u.lateProperties(id, l)); err != nil {
		return err
	}
	defer u.lock(id).Unlock()
	return u.limitCPU(id, l)
}

func (u *Units) remember(id chat.ID, props []systemd.Property) error {
	if len(props) == 0 {
		return nil
	}
	if err := u.bus.SetProperties(u.group(id), props); err != nil {
		return fmt.Errorf("cannot limit chat %s: %w", id, err)
	}
	return nil
}

// Kill ends every process of the chat as [FS.Kill] does, and then its unit. There
// being no unit is not an error. The cgroup is killed first: systemd goes through
// the processes one by one, which a chat can make take long.
func (u *Units) Kill(ctx context.Context, id chat.ID) error {
	u.closeHandshake(id)
	was, _ := u.Frozen(id) // one that is gone is not
	// systemd removes the cgroup of a unit that ended by itself.
	if err := skipNotFound(u.FS.Kill(ctx, id)); err != nil {
		return err
	}
	err := u.stop(ctx, id)
	if err != nil && was == chat.FrozenUntilThawed { // systemd 257 stops no unit that it calls frozen
		_ = u.tell(ctx, id, u.bus.Thaw)
		err = u.stop(ctx, id)
	}
	return err
}

// stop ends the unit and waits until systemd has forgotten it, so that the
// same name can be started again.
func (u *Units) stop(ctx context.Context, id chat.ID) error {
	if err := skipNotFound(u.bus.Stop(ctx, u.group(id))); err != nil {
		return err
	}
	return u.awaitGone(ctx, id)
}

func (u *Units) awaitGone(ctx context.Context, id chat.ID) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if _, err := os.Lstat(u.dir(id)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		// Only chatd removes a cgroup that is empty and no unit's any more.
		if err := cgroupfs.RemoveTree(u.dir(id)); err == nil {
			return nil
		}
		if err := chat.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("cannot end unit %s: its cgroup is still there: %w", u.group(id),
				errors.Join(chat.ErrBusy, err))
		}
	}
}

// Remove forgets the chat's limits and makes sure that no unit is left. It is
// [chat.ErrBusy] while somebody is inside: [Units.Kill] comes first.
func (u *Units) Remove(id chat.ID) error {
	if err := checkID(id); err != nil {
		return err
	}
	if full, err := cgroupfs.Populated(u.dir(id)); full || skipNotFound(err) != nil {
		pids, merr := cgroupfs.Members(u.dir(id))
		return fmt.Errorf("cannot remove unit %s: the processes %v are in it: %w", u.group(id), pids,
			errors.Join(chat.ErrBusy, err, merr))
	}
	ctx, stop := context.WithTimeout(context.Background(), stopTime)
	defer stop()
	if err := u.stop(ctx, id); err != nil {
		return err
	}
	defer u.lock(id).Unlock()
	u.forget(u.dir(id))
	return nil
}

// Invocation is [systemd.Bus.Invocation] of the chat's unit.
func (u *Units) Invocation(id chat.ID) (string, error) { return u.bus.Invocation(u.group(id)) }

// Invocation is nothing: what cgroupfs started has no name but its pid.
func (f *FS) Invocation(chat.ID) (string, error) { return "", nil }
