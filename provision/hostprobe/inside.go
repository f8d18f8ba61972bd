package hostprobe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/netpolicy/netns"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/sockets"
)

// tryInside tries the walls twice: in the session's first command, which PID 1 or chatd started,
// and in a run, which chatd starts. Their walls may differ: a run inherits the filters and limits
// of chatd.service.
func (p *Prober) tryInside(ctx context.Context, v plan.View) ([]chat.Layer, error) {
	argv, release, err := p.program(v)
	if err != nil {
		return nil, err
	}
	defer release()
	var b session.Files
	defer b.Close()
	spec := session.Spec{Chat: ID, View: v, Limits: p.profile().Limits.ProcessLimits,
		Argv: append([]string{"/bin/sh", "-c", `"$@" && exec /bin/sleep infinity`, "sh"}, argv...)}
	cmd := p.opt.Starter.Bubblewrap(spec, &b)
	out := b.Output("stdout")
	if b.Err != nil {
		return nil, b.Err
	}
	cmd.Stdout = out
	if err := p.opt.Starter.Launch(spec, cmd, &b); err != nil {
		return nil, fmt.Errorf("%w%s", err, b.Complaint())
	}
	b.CloseChildEnds()
	kill := func() { _ = p.opt.Groups.Kill(context.WithoutCancel(ctx), ID) }
	defer time.AfterFunc(timeout, kill).Stop()
	init, err := b.AwaitInit(ctx, timeout)
	var found []chat.Layer
	if err == nil {
		e := session.Entry{Run: session.NewRun("probe"), Argv: argv, Dir: v.Home, View: v,
			Limits: spec.Limits}
		found, err = p.tryTwice(ctx, init, out, e)
		found = append(found, p.socketsLayer(init))
	}
	if err := errors.Join(err, p.await(ctx, cmd, init)); err != nil {
		return nil, fmt.Errorf("cannot probe a session: %w%s", err, b.Complaint())
	}
	return found, nil
}

// program is chatd-shim probe for a session of v, with what it must not see, reach or lock. release
// gives up what is held for that outside of the session.
func (p *Prober) program(v plan.View) (argv []string, release func(), err error) {
	abstract := fmt.Sprintf("chatd-probe-%d", os.Getpid())
	socket, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot listen on an abstract socket: %w", err)
	}
	locked, unlock, err := p.opt.Starter.LockShared()
	if err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	argv = []string{plan.InsideShim, "probe", "--home", v.Home,
		"--hidden", p.opt.Hidden, "--hidden", "/etc/shadow", "--abstract", abstract,
		"--pid", fmt.Sprint(os.Getpid())}
	for _, l := range locked {
		argv = append(argv, "--locked", l)
	}
	return argv, func() { unlock(); _ = socket.Close() }, nil
}

// socketsLayer puts bytes into sockets of the session, and checks that counts of package sockets
// find them, and can read the locks of the host.
func (p *Prober) socketsLayer(init *sys.ProcessHandle) chat.Layer {
	found, err := sockets.Probe(init.PID, p.opt.UID)
	if p.opt.Layers.Without(chat.LayerSockets) {
		err = layers.ErrLeftOut
	}
	return layers.Sockets(found, err)
}

// tryTwice reads the results of the session's own probe, and then probes in a run.
func (p *Prober) tryTwice(
	ctx context.Context, init *sys.ProcessHandle, out *os.File, e session.Entry,
) ([]chat.Layer, error) {
	first, err := awaitLayers(out, init.Alive, timeout)
	if err != nil {
		return nil, err
	}
	ran, err := p.opt.Starter.Enter(ctx, &session.Session{Chat: ID, UID: p.opt.UID, Init: init}, e)
	if err != nil {
		return nil, fmt.Errorf("cannot probe a run: %w", err)
	}
	var inRun []chat.Layer
	if err := json.Unmarshal(ran.Stdout, &inRun); err != nil {
		return nil, fmt.Errorf("cannot read what the probe found in a run: %w: %s",
			err, chat.QuoteOutput(ran.Stderr))
	}
	return layers.WithRun(first, inRun), nil
}

// awaitLayers waits for the results of a probe in the file that is its stdout. The session, which
// alive tells of, outlives the probe.
func awaitLayers(out io.ReaderAt, alive func() bool, timeout time.Duration) (
	found []chat.Layer, err error,
) {
	for end := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) {
		there := alive() // before the read: output from before its end counts
		err = json.NewDecoder(io.NewSectionReader(out, 0, 64<<10)).Decode(&found)
		if err == nil {
			return found, nil
		}
		if there && time.Now().After(end) {
			return nil, fmt.Errorf("cannot read what the probe found: %w after %s",
				layers.ErrSlow, timeout)
		}
		if !there {
			return nil, fmt.Errorf("cannot read what the probe found: %w", err)
		}
	}
}

// await ends the session and waits for all of it. init is nil if there is none.
func (p *Prober) await(ctx context.Context, cmd *exec.Cmd, init *sys.ProcessHandle) error {
	err := p.opt.Groups.Kill(context.WithoutCancel(ctx), ID)
	if cmd.Process != nil {
		werr := cmd.Wait()
		if _, killed := errors.AsType[*exec.ExitError](werr); !killed {
			err = errors.Join(err, werr)
		}
	}
	if init == nil {
		return err
	}
	if cmd.Process == nil { // systemd's child
		err = errors.Join(err, init.Wait())
	}
	return errors.Join(err, init.WaitExit(ctx, p.opt.UID), init.Close())
}

// ownNetwork is the layer network of sessions out of which chatd-egress carries connections: that
// of a session without a way out, of which inside are the layers, and the redirect.
func ownNetwork(inside []chat.Layer) chat.Layer {
	i := slices.IndexFunc(inside, func(l chat.Layer) bool { return l.Name == chat.LayerNetwork })
	if i < 0 { // it is left out
		return chat.Layer{Name: chat.LayerNetwork, State: chat.LayerUnknown}
	}
	l := inside[i]
	if l.State == chat.LayerOff {
		return l
	}
	if err := netns.Try(); err != nil {
		return layers.Failed(l, err, "load the kernel modules nf_tables and nft_tproxy")
	}
	l.By += ", nftables"
	l.Probe += "; a connection to an address outside comes to chatd, and tells where it goes"
	return l
}
