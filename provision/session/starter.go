package session

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/unshare"
)

// Options are what a [Starter] needs to know. Directories are absolute and root's.
type Options struct {
	Groups StartGroups
	// Units: systemd starts the sessions; Groups are then [cgroup.Units].
	Units bool
	// Boot is the id of this boot; see [sys.BootID].
	Boot string
	// Shim is the installed chatd-shim.
	Shim string
	// Tmp and VarTmp are the parents of the private /tmp and /var/tmp trees.
	Tmp, VarTmp string
	// Overlays has the directories for overlays: Dir, Empty and Lowers. The rest depends on the
	// session.
	Overlays unshare.Trees
	// LandlockABI is the least that a session starts with.
	LandlockABI int
	Programs    *Programs
	Later       *Later
	Log         *slog.Logger
}

// StartGroups are the cgroups of sessions too.
type StartGroups interface {
	Groups
	StartPrepared(id chat.ID, leaf string, cmd *exec.Cmd, prepare cgroup.Prepare) error
	SetMainProcess(id chat.ID, pid int) error
	Invocation(chat.ID) (string, error)
	Members(chat.ID) ([]int, error)
	Kill(context.Context, chat.ID) error
}

// Starter starts sessions and brings commands into them. Its methods are safe for concurrent use,
// except for [Starter.TryApart].
type Starter struct {
	opt Options
	// shares is why sessions cannot have inodes of their own on this host; nil if they can.
	shares error
}

// New returns a Starter.
func New(o Options) *Starter { return &Starter{opt: o} }

// Session is the processes of one awake chat: bubblewrap's pid 1 and its descendants.
type Session struct {
	Chat chat.ID
	UID  uint32
	// Init is bubblewrap's pid 1. Its owner closes it.
	Init *sys.ProcessHandle
	saved
	// Masked are the paths that bubblewrap masked and that the current rules still deny.
	Masked atomic.Pointer[[]string]

	refreshing sync.Mutex
	refreshed  time.Time
	made       int64    // the value of Programs.made at the last refresh
	overlays   []string // where chatd's overlays are mounted in it; nil until looked for
}

// saved is what a later chatd reads again of a session.
type saved struct {
	// Report is what chatd-shim found enforced.
	Report plan.Report `json:"report"`
	// Invocation is systemd's name for this run of the unit; empty without systemd.
	Invocation string `json:"invocation,omitempty"`
	// Plan is the plan that started it, which the caller sets before [Session.Write]; Exposed are
	// the paths of the host that it sees, to which later commands confine themselves.
	Plan    *chat.Plan     `json:"plan,omitempty"`
	Exposed []chat.Exposed `json:"exposed,omitempty"`
	// Basis has a digest of each part of chat and profile that holds from start to end of a
	// session, by its key. The caller sets it as it does Plan.
	Basis map[string]string `json:"basis,omitempty"`
}

// Kill ends every process of the chat. With systemd it returns when the unit has ended, and with
// it the session's pid 1. The kernel keeps pid 1 until every process of its namespace is reaped;
// some of them are children of chatd (see [sys.BecomeSubreaper]). A uid of 0 means that the chat of
// the cgroup is unknown.
func (s *Starter) Kill(ctx context.Context, id chat.ID, uid uint32) error {
	if !s.opt.Units || uid == 0 {
		return s.opt.Groups.Kill(ctx, id)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.opt.Groups.Kill(ctx, id) }()
	var errs []error
	for {
		select {
		case err := <-ended:
			return errors.Join(append(errs, err)...)
		case <-time.After(10 * time.Millisecond):
			if err := sys.CollectOrphans(uid); err != nil && len(errs) == 0 {
				errs = append(errs, err)
			}
		}
	}
}

// Abandon ends a session that did not come up, so that nothing of it remains when the caller
// undoes the earlier steps. It closes init, which may be nil.
func (s *Starter) Abandon(id chat.ID, uid uint32, init *sys.ProcessHandle) error {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	err := s.Kill(ctx, id, uid)
	if init == nil {
		return err
	}
	return errors.Join(err, init.WaitExit(ctx, uid), init.Close())
}
