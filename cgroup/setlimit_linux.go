package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// LimitCPU sets the CPU quota, and nothing else. It is a step of its own because
// a session needs three times as long to its prompt under the quota (tried).
// [chat.ErrNotFound] without the chat's tree.
func (f *FS) LimitCPU(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	return f.limitCPU(id, l)
}

// Limit sets all limits of a chat that may be alive, also those after one that fails. Memory below
// what is in use makes the kernel reclaim, then end processes (cgroup v2), or refuse, which is
// [chat.ErrBusy] (cgroup v1). Pids below what is there only stops new ones.
func (f *FS) Limit(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	if _, err := os.Stat(f.dir(id)); err != nil {
		return fmt.Errorf("cannot limit chat %s: %w", id, cgroupfs.NotFound(err))
	}
	f.keepLimits(id, l)
	return errors.Join(f.limit(id, l), f.limitCPU(id, l))
}

// limit sets the bounds that stand from the first instruction.
func (f *FS) limit(id chat.ID, l chat.Limits) error {
	if f.legacy != nil {
		if err := f.legacy.create(id); err != nil {
			return err
		}
	}
	return f.setBounds(id, l, isEarly)
}

func (f *FS) limitCPU(id chat.ID, l chat.Limits) error { return f.setBounds(id, l, isLate) }

func isEarly(b bound) bool { return !b.late }
func isLate(b bound) bool  { return b.late }
func isAny(bound) bool     { return true }

// keepLimits remembers what the chat's limits are.
func (f *FS) keepLimits(id chat.ID, l chat.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits[id] = l
}

// setBounds sets the bounds that which chooses.
func (f *FS) setBounds(id chat.ID, l chat.Limits, which func(bound) bool) (err error) {
	for _, b := range bounds {
		if !which(b) || f.without(b.layer) {
			continue
		}
		if serr := b.set(f, id, l); serr != nil {
			err = errors.Join(err, limitError(id, serr))
		}
	}
	return err
}

// lift takes away the bounds that the dying would wait for, as far as which chooses them.
func (f *FS) lift(id chat.ID, which func(bound) bool) error {
	for _, b := range bounds {
		if b.lift == nil || !which(b) {
			continue
		}
		if err := b.lift(f, id); err != nil {
			return limitError(id, err)
		}
	}
	return nil
}

// Unkept returns a sentence for each limit that this host cannot keep, or not as its key says.
func (f *FS) Unkept(l chat.Limits) []string {
	var all []string
	for _, b := range bounds {
		if b.unkept != nil {
			all = append(all, b.unkept(f, l)...)
		}
	}
	return all
}

func limitError(id chat.ID, err error) error {
	if errors.Is(err, unix.EBUSY) {
		err = errors.Join(chat.ErrBusy, err)
	}
	return fmt.Errorf("cannot limit chat %s: %w", id, cgroupfs.NotFound(err))
}

func (f *FS) update(id chat.ID, r *cgroup2.Resources) error {
	m, err := cgroup2.Load("/"+f.group(id), cgroup2.WithMountpoint(f.bases.Unified))
	if err != nil {
		return err
	}
	return m.Update(r)
}

// earlyProperties are the bounds that stand from the first instruction, for a chat's unit.
func (f *FS) earlyProperties(id chat.ID, l chat.Limits) []systemd.Property {
	return f.properties(id, l, isEarly)
}

// lateProperties are those that a session gets once its prompt is up.
func (f *FS) lateProperties(id chat.ID, l chat.Limits) []systemd.Property {
	return f.properties(id, l, isLate)
}

// properties are those of the bounds that which chooses.
//
// Their order is that of the names of the drop-ins that systemd writes for them. In any other it
// says ever after that the unit changed on disk (unit_need_daemon_reload compares lists). The late
// ones, which it writes first, sort before the others.
func (f *FS) properties(id chat.ID, l chat.Limits, which func(bound) bool) []systemd.Property {
	var props []systemd.Property
	for _, b := range bounds {
		if which(b) && !f.without(b.layer) {
			props = append(props, b.unit(f, id, l)...)
		}
	}
	slices.SortFunc(props, func(a, b systemd.Property) int { return cmp.Compare(a.Name, b.Name) })
	return props
}
