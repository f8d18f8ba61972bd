package session

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

// LaunchBeside is [Starter.Launch] for a one-shot session beside one that lives, which sees nothing
// of it. It is chatd's child, and ends with it. Where systemd starts the sessions it is
// [chat.ErrUnsupported]: chatd.service may start none (its SystemCallFilter=, ProtectHostname=).
func (s *Starter) LaunchBeside(p Spec, bwrap *exec.Cmd, b *Files) error {
	if s.opt.Units {
		return fmt.Errorf("cannot start a session beside one of systemd's: %w", chat.ErrUnsupported)
	}
	return s.opt.Groups.StartPrepared(p.Chat, cgroup.BesideLeaf, bwrap, b.prepare)
}

// EndBeside is [Starter.Abandon] for what LaunchBeside started: the session beside it lives on.
func (s *Starter) EndBeside(id chat.ID, uid uint32, init *sys.HeldProcess) error {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	err := errors.Join(s.opt.Groups.EndBeside(ctx, id), sys.CollectOrphans(uid))
	if init == nil {
		return err
	}
	return errors.Join(err, init.WaitExit(ctx, uid), init.Close())
}
