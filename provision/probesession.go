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
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// tryProbeSession starts a session of the given kind of network, in which
// chatd-shim probe tries every wall from inside, and takes it away again.
func (m *Manager) tryProbeSession(ctx context.Context, kind chat.Network) (layers []chat.Layer, err error) {
	rec := state.Record{ID: probeID, UID: m.probeUID(), Profile: chat.DefaultProfile, Phase: chat.Ready}
	clean := func() error {
		c := context.WithoutCancel(ctx)
		return errors.Join(m.removeSession(c, rec), m.removeLimits(c, rec), m.removeTmp(c, rec), m.removeHome(c, rec),
			m.account.remove(c, m.accountOf(rec)))
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

// createProbeAccount: systemd starts nothing for a user that nobody knows.
func (m *Manager) createProbeAccount(ctx context.Context, rec state.Record) error {
	if !m.units {
		return nil
	}
	return m.account.create(ctx, m.accountOf(rec))
}

// waitProbe waits for the probe's end: as for a child, or where it is systemd's
// by its pid 1.
func waitProbe(cmd *exec.Cmd, inner *leader) error {
	if cmd.Process != nil {
		return cmd.Wait()
	}
	if inner == nil {
		return nil
	}
	return inner.wait()
}

func (m *Manager) runProbe(ctx context.Context, rec state.Record, kind chat.Network) ([]chat.Layer, error) {
	// An abstract socket outside, for the session to fail to reach.
	abstract := fmt.Sprintf("chatd-probe-%d-%s", os.Getpid(), kind)
	outside, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on an abstract socket: %w", err)
	}
	defer outside.Close()
	v := m.view(rec)
	v.Network, v.PromptFIFO = kind, ""
	argv := []string{shims.InsideShim, "probe", "--network", string(kind), "--home", v.Home,
		"--hidden", m.paths.shims, "--hidden", "/etc/shadow", "--abstract", abstract, "--pid", fmt.Sprint(os.Getpid())}
	var b boundFiles
	defer b.close()
	cmd := m.bwrapCommand(rec, v, argv, nil, &b)
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
	inner, innerErr := innerLeader(&b, time.Now().Add(probeTimeout))
	err = waitProbe(cmd, inner)
	if inner != nil {
		err = errors.Join(err, inner.bury(ctx, rec.UID), inner.Close())
	}
	if err := errors.Join(innerErr, err); err != nil {
		return nil, fmt.Errorf("cannot probe a session: %w%s", err, b.complaint())
	}
	var layers []chat.Layer
	if err := json.NewDecoder(io.NewSectionReader(out, 0, 64<<10)).Decode(&layers); err != nil {
		return nil, fmt.Errorf("cannot read what the probe found: %w%s", err, b.complaint())
	}
	return layers, nil
}
