package session

import (
	"context"
	"errors"
	"os/exec"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/unshare"
)

// LaunchBeside is [Starter.Launch] for a one-shot session beside one that lives, which sees nothing
// of it. It is chatd's child also where systemd owns sessions: it ends with chatd, and the unit is
// the other's. It may run none of the chat's code: it shares files of the host with others as they
// are.
func (s *Starter) LaunchBeside(p Spec, bwrap *exec.Cmd, b *Files) error {
	prepare := b.prepare
	if s.opt.Units { // chatd's own mounts are not those that a session is made of
		prepare = func(int) error { return unshare.JoinHost() }
	}
	return s.opt.Groups.StartPrepared(p.Chat, cgroup.BesideLeaf, bwrap, prepare)
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
