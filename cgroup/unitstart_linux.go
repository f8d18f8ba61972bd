package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/coreos/go-systemd/v22/dbus"
)

// startTime bounds how long a unit's first process may take to say that it is
// there: PAM and an exec.
const startTime = 30 * time.Second

// Start starts a run as [FS.Start] does. A session becomes a transient service
// instead: cmd.Args are its command, the user of cmd.SysProcAttr.Credential its
// user, and cmd.ExtraFiles are handed to it as said in "The handshake" of the package
// documentation. Everything else of cmd is not used, and cmd.Process stays nil:
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
		return fmt.Errorf("cannot start a session of chat %s: its limits are not set: %w", id, chat.ErrNotFound)
	}
	if err := u.startSession(id, limits, cmd, prepare); err != nil {
		return fmt.Errorf("cannot start unit %s: %w", u.group(id), err)
	}
	return nil
}

func (u *Units) startSession(id chat.ID, limits chat.Limits, cmd *exec.Cmd, prepare Prepare) error {
	if cmd.SysProcAttr == nil || cmd.SysProcAttr.Credential == nil {
		return fmt.Errorf("no user is named: %w", chat.ErrInvalid)
	}
	d, err := newHandshake()
	if err != nil {
		return err
	}
	s := sessionUnit{
		id: id, user: strconv.FormatUint(uint64(cmd.SysProcAttr.Credential.Uid), 10), pam: u.pam, slice: u.slice,
		argv: append([]string{cmd.Path}, cmd.Args[1:]...), stdin: int(d.theirs.Fd()),
		limits: u.earlyProperties(id, limits),
	}
	ctx, stop := context.WithTimeout(context.Background(), startTime)
	defer stop()
	ended, err := u.startUnit(ctx, s)
	if err == nil {
		err = errors.Join(d.theirs.Close(), u.letIn(ctx, d, cmd, ended, prepare))
	}
	if err == nil {
		err = u.furnish(id)
	}
	if err != nil {
		d.close()
		return err
	}
	u.keepHandshake(id, d)
	return nil
}

// startUnit asks for the unit and returns where its job's result will come. A unit
// of the same name that is just going away is waited for.
func (u *Units) startUnit(ctx context.Context, s sessionUnit) (<-chan string, error) {
	props := s.properties()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		conn, err := u.conn(ctx)
		if err != nil {
			return nil, err
		}
		ended := make(chan string, 1)
		if _, err = conn.StartTransientUnitContext(ctx, u.group(s.id), "fail", props, ended); err == nil {
			return ended, nil
		}
		if err = busError(err); !errors.Is(err, chat.ErrExists) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// letIn waits for the first process, prepares it, gives it the files, and waits until
// systemd says that the unit is up.
func (u *Units) letIn(ctx context.Context, d *handshake, cmd *exec.Cmd, ended <-chan string, prepare Prepare) error {
	here := make(chan error, 1)
	go func() { here <- d.await(wordHere, startTime) }()
	select {
	case err := <-here:
		if err != nil {
			return errors.Join(u.refusal(ctx, cmd.Path, ended), err)
		}
	case result := <-ended:
		return u.refused(cmd.Path, result)
	}
	if prepare != nil {
		if err := prepare(d.first); err != nil {
			return err
		}
	}
	if err := d.hand(cmd.ExtraFiles); err != nil {
		return err
	}
	select {
	case result := <-ended:
		if result != "done" {
			return errors.Join(fmt.Errorf("systemd says %s", result), d.complaint())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("it does not come up: %w", context.Cause(ctx)), d.complaint())
	}
}

// refusal is what systemd says of a unit whose first process was never there.
func (u *Units) refusal(ctx context.Context, program string, ended <-chan string) error {
	select {
	case result := <-ended:
		return u.refused(program, result)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (u *Units) refused(program, result string) error {
	return fmt.Errorf("systemd says %s before its first process, %s, was there; PAM service %q may refuse it: see journalctl", result, program, u.pam)
}

// furnish makes what runs need. It is root's: of the unit's cgroup systemd gave
// the chat only what its first process needs to make its own leaf.
func (u *Units) furnish(id chat.ID) error {
	defer u.lock(id).Unlock()
	if err := enable(u.dir(id), controllers); err != nil {
		return err
	}
	if err := mkdir(u.dir(id, runsDir)); err != nil {
		return err
	}
	return enable(u.dir(id, runsDir), controllers)
}

// Settle makes pid, which must be of the session and as good as PID 1's own
// child, the unit's main process, so that the unit lives exactly as long as the
// session. Until then the process that Start started is, and the unit ends when
// it or chatd does.
func (u *Units) Settle(id chat.ID, pid int) error {
	u.startMu.Lock()
	d := u.handshakes[id]
	delete(u.handshakes, id)
	u.startMu.Unlock()
	if d == nil {
		return fmt.Errorf("cannot settle the session of chat %s: none was started: %w", id, chat.ErrWrongPhase)
	}
	defer d.close()
	err := d.say(wordMain + " " + strconv.Itoa(pid))
	if err == nil {
		err = d.await(wordSettled, startTime)
	}
	if err != nil {
		return fmt.Errorf("cannot settle the session of chat %s: %w", id, err)
	}
	return nil
}

// Settle has nothing to do: under cgroupfs nobody looks after a session but the
// one who waits for its first process.
func (f *FS) Settle(chat.ID, int) error { return nil }

func (u *Units) keepHandshake(id chat.ID, d *handshake) {
	u.startMu.Lock()
	defer u.startMu.Unlock()
	if old := u.handshakes[id]; old != nil {
		old.close()
	}
	u.handshakes[id] = d
}

func (u *Units) closeHandshake(id chat.ID) {
	u.startMu.Lock()
	defer u.startMu.Unlock()
	if d := u.handshakes[id]; d != nil {
		d.close()
	}
	delete(u.handshakes, id)
}

// Probe tries the limits as [FS.Probe] does, in a unit made for each trial.
func (u *Units) Probe(ctx context.Context) []chat.Layer {
	layers := probe{f: u.FS, create: u.createProbe, limitCPU: u.limitUnitCPU, end: func(ctx context.Context, id chat.ID) error {
		return errors.Join(u.FS.kill(ctx, id), u.stop(ctx, id))
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
	props := append([]dbus.Property{
		dbus.PropDescription("Probe of the limits"), dbus.PropSlice(u.slice), dbus.PropType("exec"),
		dbus.PropExecStart([]string{sleep, "60"}, false),
	}, groupProperties(u.earlyProperties(id, l))...)
	err = u.job(context.Background(), "start "+u.group(id), func(ctx context.Context, c *dbus.Conn, done chan<- string) error {
		_, err := c.StartTransientUnitContext(ctx, u.group(id), "fail", props, done)
		return err
	})
	if err == nil {
		err = u.sendToLeaf(id)
	}
	if err == nil {
		err = u.furnish(id)
	}
	return err
}

// sendToLeaf moves the sleeper out of the unit's own cgroup. It is root's process
// and root's unit: its number cannot be another chat's.
func (u *Units) sendToLeaf(id chat.ID) error {
	if err := mkdir(u.dir(id, sessionLeaf)); err != nil {
		return err
	}
	pids, err := readPids(u.dir(id))
	for _, pid := range pids {
		err = errors.Join(err, write(u.dir(id, sessionLeaf), "cgroup.procs", strconv.Itoa(pid)))
	}
	return err
}
