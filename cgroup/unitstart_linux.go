package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
)

// Start starts a run as [FS.Start] does. A session becomes a transient service
// instead: cmd.Args are its command, the user of cmd.SysProcAttr.Credential its
// user, and cmd.ExtraFiles are handed to it as said in "The handshake" of package
// systemd. Everything else of cmd is not used, and cmd.Process stays nil:
// the process is PID 1's child.
//
// It returns when the unit is up: PAM let it in, its first process has the files
// and is in the leaf "session". [Units.Create] comes first.
func (u *Units) Start(id chat.ID, leaf string, cmd *exec.Cmd) error {
	return u.StartPrepared(id, leaf, cmd, nil)
}

// StartPrepared is [Units.Start] with prepare called before the first process has the files.
func (u *Units) StartPrepared(id chat.ID, leaf string, cmd *exec.Cmd, prepare Prepare) error {
	if leaf != sessionLeaf {
		return u.FS.StartPrepared(id, leaf, cmd, prepare)
	}
	if err := checkID(id); err != nil {
		return err
	}
	u.mu.Lock()
	limits, ok := u.limits[id]
	u.mu.Unlock()
	if !ok {
		return fmt.Errorf("cannot start a session of chat %s: its limits are not set: %w", id,
			chat.ErrNotFound)
	}
	if err := u.startSession(id, limits, cmd, prepare); err != nil {
		return fmt.Errorf("cannot start unit %s: %w", u.group(id), err)
	}
	return nil
}

func (u *Units) startSession(id chat.ID, limits chat.Limits, cmd *exec.Cmd, prepare Prepare) error {
	if cmd.SysProcAttr == nil || cmd.SysProcAttr.Credential == nil {
		return chat.Invalid("no user is named")
	}
	d, err := u.bus.StartSession(systemd.Session{
		Unit: u.group(id), Slice: u.slice, Chat: id, UID: cmd.SysProcAttr.Credential.Uid, PAM: u.o.PAM,
		Argv: append([]string{cmd.Path}, cmd.Args[1:]...), Limits: u.earlyProperties(id, limits),
	}, cmd.ExtraFiles, prepare)
	if err != nil {
		return err
	}
	if err := u.makeLeaves(id); err != nil {
		d.Close()
		return err
	}
	u.keepHandshake(id, d)
	return nil
}

// makeLeaves makes what runs need. It is root's: of the unit's cgroup systemd gave
// the chat only what its first process needs to make its own leaf.
func (u *Units) makeLeaves(id chat.ID) error {
	defer u.lock(id).Unlock()
	if err := enable(u.dir(id), controllers); err != nil {
		return err
	}
	if err := cgroupfs.Make(u.dir(id, runsDir)); err != nil {
		return err
	}
	return enable(u.dir(id, runsDir), controllers)
}

// SetMainProcess makes pid, which must be of the session and as good as PID 1's own
// child, the unit's main process, so that the unit lives exactly as long as the
// session. Until then the process that Start started is, and the unit ends when
// it or chatd does.
func (u *Units) SetMainProcess(id chat.ID, pid int) error {
	u.startMu.Lock()
	d := u.handshakes[id]
	delete(u.handshakes, id)
	u.startMu.Unlock()
	if d == nil {
		return fmt.Errorf("cannot settle the session of chat %s: none was started: %w", id,
			chat.ErrWrongPhase)
	}
	defer d.Close()
	if err := d.SetMainPID(pid); err != nil {
		return fmt.Errorf("cannot settle the session of chat %s: %w", id, err)
	}
	return nil
}

// SetMainProcess has nothing to do: under cgroupfs nobody looks after a session but the
// one who waits for its first process.
func (f *FS) SetMainProcess(chat.ID, int) error { return nil }

func (u *Units) keepHandshake(id chat.ID, d *systemd.Handshake) {
	u.startMu.Lock()
	defer u.startMu.Unlock()
	if old := u.handshakes[id]; old != nil {
		old.Close()
	}
	u.handshakes[id] = d
}

func (u *Units) closeHandshake(id chat.ID) {
	u.startMu.Lock()
	defer u.startMu.Unlock()
	if d := u.handshakes[id]; d != nil {
		d.Close()
	}
	delete(u.handshakes, id)
}

// Probe tries the limits as [FS.Probe] does, in a unit made for each trial.
func (u *Units) Probe(ctx context.Context, failed FailedLayer) []chat.Layer {
	layers := probe{f: u.FS, failed: failed, create: u.createProbe, limitCPU: u.limitUnitCPU,
		end: func(ctx context.Context, id chat.ID) error {
			return errors.Join(u.FS.Kill(ctx, id), u.stop(ctx, id))
		}}.layers(ctx)
	for i := range layers {
		if layers[i].By != "" {
			layers[i].By = u.Mode()
		}
	}
	return layers
}

// createProbe is a unit with the limits and nobody inside but a sleeper, which
// keeps its cgroup there.
func (u *Units) createProbe(id chat.ID, l chat.Limits) error {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return fmt.Errorf("cannot probe: %w", err)
	}
	props := systemd.LikeSession("Probe of the limits", u.slice, []string{sleep, "60"},
		u.earlyProperties(id, l))
	err = u.bus.StartTransient(context.Background(), u.group(id), props)
	if err == nil {
		err = u.sendToLeaf(id)
	}
	if err == nil {
		err = u.makeLeaves(id)
	}
	return err
}

// sendToLeaf moves the sleeper out of the unit's own cgroup. It is root's process
// and root's unit: its number cannot be another chat's.
func (u *Units) sendToLeaf(id chat.ID) error {
	if err := cgroupfs.Make(u.dir(id, sessionLeaf)); err != nil {
		return err
	}
	pids, err := cgroupfs.Processes(u.dir(id))
	for _, pid := range pids {
		err = errors.Join(err, cgroupfs.Write(u.dir(id, sessionLeaf), "cgroup.procs", strconv.Itoa(pid)))
	}
	return err
}
