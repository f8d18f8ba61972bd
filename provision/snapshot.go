package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/homedir"
)

// A snapshot is a clone of the home of an awake chat, which is made while all of the chat stands
// still, and packed while it goes on. The clone shares the content of the files and counts for the
// chat's quota. A one-shot session beside the chat's own makes and reads it; that of the chat has
// no path to it: it lies in a directory of root's that is in no other view.

const (
	// cloneTimeout bounds how long a chat stands still. It is less than a message for its terminal
	// waits (clientTimeout).
	cloneTimeout = 15 * time.Second
	// snapshotInside is where the one-shot session has the clone.
	snapshotInside = "/tmp"
)

var errCloneTimeout = fmt.Errorf("the chat would stand still for over %s: %w", cloneTimeout, chat.ErrBusy)

// takeSnapshot clones the home of an awake chat. The caller holds the chat's lock, which nothing after
// it needs.
func (k *packing) takeSnapshot(ctx context.Context) (from homeSource, err error) {
	rec := k.rec
	if k.layers.Without(chat.LayerView) || k.layers.Without(chat.LayerProc) ||
		k.layers.Without(chat.LayerTmp) {
		return from, errors.New("the layers view, proc and tmp keep a chat from the clone")
	}
	if err := homedir.TryReflinks(k.dirs.Homes); err != nil {
		return from, err
	}
	leave, err := k.letIn(ctx, rec, k.of) // so that nothing else freezes it, and it is not frozen
	if err != nil {
		return from, err
	}
	defer leave()
	k.keepTerminal(ctx, rec.ID)
	if err = k.removeClone(); err == nil {
		err = homedir.MakeOwned(k.dirs.Snapshots, string(rec.ID), rec.UID, 0o700, "")
	}
	from = homeSource{do: k.doClone, dir: snapshotInside, snapshot: true, done: k.removeClone}
	if err == nil {
		from.left, err = k.clone(ctx)
	}
	if err != nil {
		return from, errors.Join(err, k.removeClone())
	}
	return from, nil
}

// clone makes the clone while the chat stands still. It goes on in any case.
func (k *packing) clone(ctx context.Context) (archives.Result, error) {
	task := archives.Task{Args: []string{"clone", k.rec.home, snapshotInside}, In: strings.NewReader(".")}
	return k.beside(ctx, "cloning", task,
		func(ctx context.Context, p *archives.Process) (r archives.Result, err error) {
			goOn, err := k.groups.Pause(ctx, k.rec.ID)
			if err != nil {
				return r, err
			}
			defer func() { err = errors.Join(err, goOn()) }()
			sys.Failpoint("snapshot.pause.after")
			began := time.Now()
			ctx, cancel := context.WithTimeoutCause(ctx, cloneTimeout, errCloneTimeout)
			defer cancel()
			r, err = p.Wait(ctx)
			k.log.Debug("cloned the home of a chat", "chat", k.rec.ID, "took", time.Since(began))
			sys.Failpoint("snapshot.clone.after")
			return r, err
		})
}

// doClone does a command with the clone. The chat's lock is held until that has begun, so that it meets
// no end of the session; a later one ends it.
func (k *packing) doClone(
	ctx context.Context, doing string, task archives.Task,
) (r archives.Result, err error) {
	unlock, err := k.chats.locks.Lock(ctx, k.rec.ID)
	if err != nil {
		return r, err
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	if k.chats.session(k.rec.ID) == k.of && k.of.lives() {
		r, err = k.beside(ctx, doing, task,
			func(ctx context.Context, p *archives.Process) (archives.Result, error) {
				unlock()
				sys.Failpoint("snapshot." + task.Args[0] + ".before")
				return p.Wait(ctx)
			})
	}
	if !k.of.lives() && ctx.Err() == nil {
		err = errors.Join(err, fmt.Errorf("its session ended while it was archived: %w", chat.ErrConflict))
	}
	return r, err
}

// besideMemory and besidePids bound a command beside a session: chatd-archive needs no more.
const (
	besideMemory = 256 << 20
	besidePids   = 32
)

// beside does a command in a one-shot session beside the chat's own, in a cgroup or unit of its own
// with limits like the chat's: in the chat's it would stand still too, and a unit has one session.
func (k *packing) beside(
	ctx context.Context, doing string, task archives.Task,
	wait func(context.Context, *archives.Process) (archives.Result, error),
) (archives.Result, error) {
	group, end := k.archive.Beside(k.rec.ID, k.chats.hasChat)
	defer end()
	limits := k.rec.profile.Limits
	limits.MemoryMax, limits.PidsMax = min(limits.MemoryMax, besideMemory), besidePids
	spec := k.taskSpec(k.rec, task)
	spec.View.Tmp = filepath.Join(k.dirs.Snapshots, string(k.rec.ID))
	spec.View.VarTmp = spec.View.Tmp
	return k.runTask(ctx, k.rec, doing, task,
		taskPlace{group: group, limits: limits, spec: spec, wait: wait})
}

func (k *packing) removeClone() error { return k.dirs.RemoveClone(k.rec.ID) }

// endSnapshot ends what a chatd that crashed left of a snapshot: the chat goes on at once, and its
// clone is removed behind.
func (k *archiver) endSnapshot(id chat.ID) error {
	if k.archive.Keeps(id) {
		return nil // it is no remnant
	}
	if err := k.groups.EndPause(id); err != nil {
		return err
	}
	_, err := os.Lstat(filepath.Join(k.dirs.Snapshots, string(id)))
	if errors.Is(err, os.ErrNotExist) || !k.archive.Keep(id) {
		return nil
	}
	_, err = k.later.Do("the clone of chat "+string(id), time.Second,
		func(context.Context) error {
			defer k.archive.Kept(id)
			return k.dirs.RemoveClone(id)
		}, nil)
	return err
}
