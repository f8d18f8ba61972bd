package provision

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
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/sockets"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
)

// tryProbeSession starts a session of the given kind of network, in which
// chatd-shim probe tries every wall from inside, and removes it again.
func (m *Manager) tryProbeSession(ctx context.Context, kind chat.Network) (layers []chat.Layer, err error) {
	rec := state.Record{ID: probeID, UID: m.probeUID(), Profile: chat.DefaultProfile, Phase: chat.Ready}
	clean := func() error {
		c := context.WithoutCancel(ctx)
		return errors.Join(m.removeSession(c, rec), m.removeLimits(c, rec), m.removeTmp(c, rec), m.removeHome(c, rec),
			m.account.Remove(c, m.accountOf(rec)))
	}
	if err := clean(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, clean()) }()
	for _, create := range []func(context.Context, state.Record) error{m.createProbeAccount, m.createHome, m.createTmp, m.createLimits} {
		if err := create(ctx, rec); err != nil {
			return nil, err
		}
	}
	return m.runProbe(ctx, rec, kind)
}

// createProbeAccount makes the account that systemd needs to start a unit of the uid.
func (m *Manager) createProbeAccount(ctx context.Context, rec state.Record) error {
	if !m.units {
		return nil
	}
	return m.account.Create(ctx, m.accountOf(rec))
}

// runProbe tries the walls twice: in the session's first command, which PID 1 or chatd
// started, and in a run, which chatd starts. Their walls may differ: a run inherits the
// filters and limits of chatd.service.
func (m *Manager) runProbe(ctx context.Context, rec state.Record, kind chat.Network) ([]chat.Layer, error) {
	// An abstract socket outside, which the session must not reach.
	abstract := fmt.Sprintf("chatd-probe-%d-%s", os.Getpid(), kind)
	outside, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on an abstract socket: %w", err)
	}
	defer outside.Close()
	locked, unlock, err := m.lockShared()
	if err != nil {
		return nil, err
	}
	defer unlock()
	v := m.view(rec)
	v.Network, v.PromptFIFO = kind, ""
	argv := []string{shims.InsideShim, "probe", "--network", string(kind), "--home", v.Home,
		"--hidden", m.paths.profiles, "--hidden", "/etc/shadow", "--abstract", abstract, "--pid", fmt.Sprint(os.Getpid())}
	for _, l := range locked {
		argv = append(argv, "--locked", l)
	}
	var b boundFiles
	defer b.close()
	hold := append([]string{"/bin/sh", "-c", `"$@" && exec /bin/sleep infinity`, "sh"}, argv...)
	cmd := m.bwrapCommand(rec, v, hold, nil, &b)
	out := b.stdio("stdout")
	if b.err != nil {
		return nil, b.err
	}
	cmd.Stdout = out
	if err := m.startInGroup(rec, cmd, &b); err != nil {
		return nil, fmt.Errorf("%w%s", err, b.complaint())
	}
	b.closeChildEnds()
	timer := time.AfterFunc(probeTimeout, func() { _ = m.groups.Kill(context.WithoutCancel(ctx), rec.ID) })
	defer timer.Stop()
	inner, err := awaitInit(&b, time.Now().Add(probeTimeout))
	if err == nil {
		err = b.openBarrier(ctx, inner, time.Now().Add(probeTimeout))
	}
	var layers []chat.Layer
	if err == nil {
		layers, err = m.probeTwice(ctx, rec, inner, out, entry{argv: argv, network: kind})
		layers = append(layers, m.socketsLayer(inner, rec.UID))
	}
	if err := errors.Join(err, m.endProbe(ctx, rec, cmd, inner)); err != nil {
		return nil, fmt.Errorf("cannot probe a session: %w%s", err, b.complaint())
	}
	return layers, nil
}

// socketsLayer puts bytes into sockets of the session, and a lock on a file, and checks that the
// counts of socketWatch find them.
func (m *Manager) socketsLayer(inner *sys.HeldProcess, uid uint32) chat.Layer {
	l := chat.Layer{Name: chat.LayerSockets, State: chat.LayerOn, By: "sock_diag, /proc/locks", At: time.Now()}
	room, err := sockets.Open(inner.PID)
	if err == nil {
		l.Probe, err = room.Try(uid)
		err = errors.Join(err, room.Close())
	}
	if err == nil {
		_, err = sockets.Locks()
	}
	if m.without(chat.LayerSockets) {
		err = errors.New("left out for a test")
	}
	if err != nil {
		l.State, l.By, l.Probe = chat.LayerOff, "", err.Error()
		l.Fix = "use a kernel with CONFIG_INET_DIAG, CONFIG_INET_UDP_DIAG and CONFIG_UNIX_DIAG, whose modules may be loaded"
	}
	return l
}

// probeTwice reads the results of the session's own probe, and then probes in a run.
func (m *Manager) probeTwice(ctx context.Context, rec state.Record, inner *sys.HeldProcess, out *os.File, e entry) ([]chat.Layer, error) {
	layers, err := awaitLayers(out, inner)
	if err != nil {
		return nil, err
	}
	e.run, e.dir = m.newRun("probe"), m.home(rec.ID)
	ran, err := m.enter(ctx, rec, &session{id: rec.ID, uid: rec.UID, init: inner}, e)
	if err != nil {
		return nil, fmt.Errorf("cannot probe a run: %w", err)
	}
	var inRun []chat.Layer
	if err := json.Unmarshal(ran.stdout.Bytes(), &inRun); err != nil {
		return nil, fmt.Errorf("cannot read what the probe found in a run: %w: %s", err, chat.QuoteOutput(ran.stderr.Text()))
	}
	for i, l := range inRun {
		if l.State != chat.LayerOn {
			inRun[i].Probe = "in a run: " + l.Probe
		}
	}
	return worst(layers, inRun), nil
}

// worst merges two lists of results: one for each layer, the worse if both have one.
func worst(layers, others []chat.Layer) []chat.Layer {
	for _, l := range others {
		i := slices.IndexFunc(layers, func(had chat.Layer) bool { return had.Name == l.Name })
		if i < 0 {
			layers = append(layers, l)
			continue
		}
		layers[i] = worse(layers[i], l)
	}
	return layers
}

// awaitLayers waits for the results of a probe in the file that is its stdout; its
// process lives on.
func awaitLayers(out *os.File, inner *sys.HeldProcess) (layers []chat.Layer, err error) {
	for end := time.Now().Add(probeTimeout); ; time.Sleep(2 * time.Millisecond) {
		there := inner.Alive() // before the read: output from before its end counts
		err = json.NewDecoder(io.NewSectionReader(out, 0, 64<<10)).Decode(&layers)
		if err == nil {
			return layers, nil
		}
		if there && time.Now().After(end) {
			return nil, fmt.Errorf("cannot read what the probe found: %w after %s", errSlow, probeTimeout)
		}
		if !there {
			return nil, fmt.Errorf("cannot read what the probe found: %w", err)
		}
	}
}

// endProbe ends the session of a probe and waits for all of it.
func (m *Manager) endProbe(ctx context.Context, rec state.Record, cmd *exec.Cmd, inner *sys.HeldProcess) error {
	err := m.groups.Kill(context.WithoutCancel(ctx), rec.ID)
	if cmd.Process != nil {
		var exit *exec.ExitError
		if werr := cmd.Wait(); !errors.As(werr, &exit) { // it was killed
			err = errors.Join(err, werr)
		}
	}
	if inner == nil {
		return err
	}
	if cmd.Process == nil { // systemd's child
		err = errors.Join(err, inner.Wait())
	}
	return errors.Join(err, inner.WaitExit(ctx, rec.UID), inner.Close())
}
