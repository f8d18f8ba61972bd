package cgroup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// Freeze stops the processes of the session where they are, until [FS.Thaw]. Runs have leaves of
// their own and go on. There is no moment at which they hold a lock of the kernel's: cgroup.freeze
// stops a process as it returns from the kernel (cgroup-v2.rst). A frozen process dies of
// cgroup.kill and of the OOM killer.
//
// This file lies below what systemd manages, so chatd writes it itself with both backends.
func (f *FS) Freeze(id chat.ID) error { return f.writeFreeze(id, "1", sessionLeaf) }

// Thaw undoes [FS.Freeze]. It may be called of a session that is not frozen.
func (f *FS) Thaw(id chat.ID) error { return f.writeFreeze(id, "0", sessionLeaf) }

// FreezeAll stops every process of the chat where it is, those of its runs too, until [FS.ThawAll], and
// returns when they stand still. It is [chat.ErrBusy] if some are in the kernel for long: the chat
// is held all the same, and they stop when they leave it.
//
// It waits for starts that have begun, and refuses others: see checkThawed.
func (f *FS) FreezeAll(ctx context.Context, id chat.ID) error {
	g := f.gate(id)
	g.holding.Add(1)
	defer g.holding.Add(-1)
	g.Lock()
	defer g.Unlock()
	if err := f.writeFreeze(id, "1"); err != nil {
		return err
	}
	return f.awaitFrozen(ctx, id)
}

// ThawAll undoes [FS.FreezeAll], and no [FS.Freeze].
func (f *FS) ThawAll(_ context.Context, id chat.ID) error { return f.writeFreeze(id, "0") }

// Frozen says what stands still of a chat, by the kernel's own files: they are the only record. A
// chat without a session has nothing frozen, and one that is paused will go on.
func (f *FS) Frozen(id chat.ID) (chat.Frozen, error) {
	switch all, err := f.freezes(id); {
	case err != nil:
		return "", err
	case all:
		return chat.FrozenUntilThawed, nil
	}
	session, err := f.freezes(id, sessionLeaf)
	if err != nil || !session || f.paused(id) {
		return "", err
	}
	return chat.FrozenUntilUsed, nil
}

// freezes reports what cgroup.freeze of a cgroup of the chat says; one that is gone is not frozen.
func (f *FS) freezes(id chat.ID, leaf ...string) (bool, error) {
	text, err := cgroupfs.Read(f.dir(id, leaf...), "cgroup.freeze")
	if errors.Is(err, chat.ErrNotFound) {
		return false, nil
	}
	return strings.TrimSpace(string(text)) == "1", err
}

func (f *FS) writeFreeze(id chat.ID, value string, leaf ...string) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := cgroupfs.Write(f.dir(id, leaf...), "cgroup.freeze", value); err != nil {
		return fmt.Errorf("cannot freeze or thaw chat %s: %w", id, cgroupfs.NotFound(err))
	}
	return nil
}

// freezeTimeout bounds the wait until every process of a chat stands still. One that is out of CPU
// quota stops in its next period.
const freezeTimeout = 5 * time.Second

func (f *FS) awaitFrozen(ctx context.Context, id chat.ID, leaf ...string) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		frozen, err := cgroupfs.ReadFlat(f.dir(id, leaf...), "cgroup.events", "frozen")
		if err != nil || frozen != 0 {
			return err
		}
		switch err := chat.Sleep(ctx, wait); {
		case caller.Err() != nil:
			return fmt.Errorf("cannot wait until chat %s stands still: %w", id, context.Cause(caller))
		case err != nil:
			return fmt.Errorf("cannot stop every process of chat %s yet: some are in the kernel, "+
				"and stop when they leave it: %w", id, chat.ErrBusy)
		}
	}
}

// gate is held for reading while something starts in a chat, and for writing while the chat
// becomes held or is paused. A child that is born in a frozen cgroup stops before its exec, and
// Go's fork holds up every other one of chatd so long.
type gate struct {
	sync.RWMutex
	holding atomic.Int32 // calls of FreezeAll
}

func (f *FS) gate(id chat.ID) *gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.gates[id]
	if g == nil {
		g = &gate{}
		f.gates[id] = g
	}
	return g
}

// enterGate lets a start in a chat begin, unless the chat becomes held now. It waits while the
// chat is paused.
func (f *FS) enterGate(id chat.ID) (leave func(), err error) {
	g := f.gate(id)
	if g.holding.Load() > 0 {
		return nil, errFrozen
	}
	g.RLock()
	return g.RUnlock, nil
}

// errFrozen refuses a start in a chat whose processes stand still.
var errFrozen = fmt.Errorf("the chat is frozen (cgroup.freeze); thaw it or reap the chat: %w",
	chat.ErrBusy)

// FreezeAll is [FS.FreezeAll]. The unit's own cgroup is systemd's, which is told what the kernel shows by
// then. So it has nothing to do, its status says frozen, and it thaws the unit before it acts on
// it. Only that depends on its answer: an operator can hold a chat while D-Bus is gone.
func (u *Units) FreezeAll(ctx context.Context, id chat.ID) error {
	err := u.FS.FreezeAll(ctx, id)
	if err == nil {
		_ = u.tell(ctx, id, u.bus.Freeze)
	}
	return err
}

// ThawAll is [FS.ThawAll], and tells systemd.
func (u *Units) ThawAll(ctx context.Context, id chat.ID) error {
	err := u.FS.ThawAll(ctx, id)
	if err == nil {
		_ = u.tell(ctx, id, u.bus.Thaw) // see FreezeAll
	}
	return err
}

func (u *Units) tell(
	ctx context.Context, id chat.ID, what func(context.Context, string) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	return what(ctx, u.group(id))
}
