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

// snapshot is the clone of the home of a chat whose session lives.
type snapshot struct {
	m   *archiver
	rec subject
	of  *liveSession
}

// takeSnapshot clones the home. The caller holds the chat's lock, which nothing after it needs.
func (k *archiver) takeSnapshot(
	ctx context.Context, rec subject, s *liveSession,
) (from homeSource, err error) {
	if k.layers.Without(chat.LayerView) || k.layers.Without(chat.LayerProc) ||
		k.layers.Without(chat.LayerTmp) {
		return from, errors.New("the layers view, proc and tmp keep a chat from the clone")
	}
	if err := homedir.TryReflinks(k.dirs.Homes); err != nil {
		return from, err
	}
	n := snapshot{k, rec, s}
	leave, err := k.letIn(ctx, rec, s) // so that nothing else freezes it, and it is not frozen
	if err != nil {
		return from, err
	}
	defer leave()
	k.keepTerminal(ctx, rec.ID)
	if err = n.remove(); err == nil {
		err = homedir.MakeOwned(k.dirs.Snapshots, string(rec.ID), rec.UID, 0o700, "")
	}
	from = homeSource{do: n.do, dir: snapshotInside, snapshot: true, done: n.remove}
	if err == nil {
		from.left, err = n.clone(ctx)
	}
	if err != nil {
		return from, errors.Join(err, n.remove())
	}
	return from, nil
}

// clone makes the clone while the chat stands still. It goes on in any case.
func (n snapshot) clone(ctx context.Context) (archives.Result, error) {
	task := archives.Task{Args: []string{"clone", n.rec.home, snapshotInside}, In: strings.NewReader(".")}
	return n.beside(ctx, "cloning", task,
		func(ctx context.Context, p *archives.Process) (r archives.Result, err error) {
			goOn, err := n.m.groups.Pause(ctx, n.rec.ID)
			if err != nil {
				return r, err
			}
			defer func() { err = errors.Join(err, goOn()) }()
			sys.Failpoint("snapshot.pause.after")
			began := time.Now()
			ctx, cancel := context.WithTimeoutCause(ctx, cloneTimeout, errCloneTimeout)
			defer cancel()
			r, err = p.Wait(ctx)
			n.m.log.Debug("cloned the home of a chat", "chat", n.rec.ID, "took", time.Since(began))
			sys.Failpoint("snapshot.clone.after")
			return r, err
		})
}

// do does a command with the clone. The chat's lock is held until that has begun, so that it meets
// no end of the session; a later one ends it.
func (n snapshot) do(ctx context.Context, doing string, task archives.Task) (r archives.Result, err error) {
	unlock, err := n.m.chats.locks.Lock(ctx, n.rec.ID)
	if err != nil {
		return r, err
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	if n.m.chats.session(n.rec.ID) == n.of && n.of.lives() {
		r, err = n.beside(ctx, doing, task,
			func(ctx context.Context, p *archives.Process) (archives.Result, error) {
				unlock()
				sys.Failpoint("snapshot." + task.Args[0] + ".before")
				return p.Wait(ctx)
			})
	}
	if !n.of.lives() && ctx.Err() == nil {
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
func (n snapshot) beside(
	ctx context.Context, doing string, task archives.Task,
	wait func(context.Context, *archives.Process) (archives.Result, error),
) (archives.Result, error) {
	group, end := n.m.archive.Beside(n.rec.ID, n.m.chats.hasChat)
	defer end()
	limits := n.rec.profile.Limits
	limits.MemoryMax, limits.PidsMax = min(limits.MemoryMax, besideMemory), besidePids
	spec := n.m.taskSpec(n.rec, task)
	spec.View.Tmp = filepath.Join(n.m.dirs.Snapshots, string(n.rec.ID))
	spec.View.VarTmp = spec.View.Tmp
	return n.m.runTask(ctx, n.rec, doing, task,
		taskPlace{group: group, limits: limits, spec: spec, wait: wait})
}

func (n snapshot) remove() error { return n.m.dirs.RemoveClone(n.rec.ID) }

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
