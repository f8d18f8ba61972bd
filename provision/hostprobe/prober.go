package hostprobe

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/session"
)

// ID is the chat that probes act as. It has no record. The caller clears its remains after a crash
// as those of a session without a chat.
const ID chat.ID = "0000000000000000"

// timeout bounds one probe of a session.
const timeout = 30 * time.Second

// Options are what a [Prober] tries, and where. Directories are absolute and root's.
type Options struct {
	// UID is that of probes, the last one of the range.
	UID      uint32
	Profiles map[string]chat.Profile
	// Layers knows which layers are left out, and which may be.
	Layers  *layers.Set
	Starter *session.Starter
	Groups  Groups
	// Units: systemd starts the sessions.
	Units bool
	// Table is nil on a host without the programs for packet rules; NoTable says why.
	Table   *netpolicy.Table
	NoTable error
	// Flows says how many connections chats began.
	Flows func() string
	// Homes has the homes of chats, of HomeMode.
	Homes    string
	HomeMode os.FileMode
	// HomeParent, TmpParent and VarTmpParent get the home of probes and its private trees.
	HomeParent, TmpParent, VarTmpParent string
	// Disks are the file systems that chats write.
	Disks *diskquota.Disks
	// Hidden is a path of the host that no session may see.
	Hidden string
	// Chats returns some chats that are whole, for tries that have no room for what they make.
	Chats func() []account.User
	Log   *slog.Logger
}

// Groups are the cgroups of sessions: [cgroup.FS] or [cgroup.Units]; see there.
type Groups interface {
	Probe(ctx context.Context, failed func(chat.Layer, error, string) chat.Layer) []chat.Layer
	Create(chat.ID, chat.Limits) error
	Kill(context.Context, chat.ID) error
	Remove(chat.ID) error
}

// Prober tries the walls of this host. Its methods must not be called simultaneously.
type Prober struct {
	opt     Options
	account account.Backend
	// tried is what the choice of account found; the next try reuses that.
	tried *error
}

// New returns a Prober. It has no backend of accounts before [Prober.ChooseAccount].
func New(o Options) *Prober { return &Prober{opt: o} }

// Try tries every wall. The sessions see v, which is that of a session of [ID] in the profile
// default, except for their own network, home and trees.
func (p *Prober) Try(ctx context.Context, v plan.View) (layers.Result, error) {
	v = p.own(v)
	// Limits and packet rules are tried beside the sessions: they act in trees of their own, and
	// the session sends no packet.
	var limits []chat.Layer
	var packets chat.Layer
	var beside sync.WaitGroup
	beside.Go(func() { limits = p.opt.Groups.Probe(ctx, layers.Failed) })
	beside.Go(func() { packets = p.packets() })
	outside := []chat.Layer{p.accountLayer(ctx), p.homeLayer(), p.diskLayer()}
	p.tryApart(v)
	v.Network = chat.NetworkNone
	inside := excusing(p.opt.Layers, func() ([]chat.Layer, error) { return p.trySession(ctx, v) })
	own := ownNetwork(inside)
	beside.Wait()
	outside = append(slices.Concat(outside, limits), packets)
	found := layers.Merge(outside, inside, own, p.usedNetworks())
	found.AddProc(p.opt.UID)
	if p.opt.Units {
		found.AddPAM()
	}
	if ctx.Err() != nil { // an interrupted probe has no result
		return found, fmt.Errorf("cannot try the walls: %w", context.Cause(ctx))
	}
	return found, nil
}

// tryApart tries whether this host can keep sessions apart by inode. The result of chatd's start
// holds until chatd ends.
func (p *Prober) tryApart(v plan.View) {
	if p.opt.Layers.Tried() || p.opt.Layers.Without(chat.LayerView) {
		return
	}
	if err := p.opt.Starter.TryApart(v); err != nil {
		p.opt.Log.Warn("sessions share inodes with each other and with the host", "why", err)
	}
}

// excusing is the result of try, which starts a session. While config excuses layers that no
// session came up with, it tries again without each of them.
func excusing(set *layers.Set, try func() ([]chat.Layer, error)) []chat.Layer {
	found, err := try()
	for _, lacking := range set.Excusable() {
		if err == nil || layers.CannotTell(err) {
			break
		}
		set.Excuse(lacking)
		if found, err = try(); err != nil {
			set.Unexcuse(lacking)
		}
	}
	if err != nil {
		return layers.NoSession(err)
	}
	return found
}

// packets is the result for the layer of package netpolicy.
func (p *Prober) packets() chat.Layer {
	if p.opt.Table != nil {
		l := p.opt.Table.Probe()
		l.Probe += "; " + p.opt.Flows()
		return l
	}
	return layers.NoPackets(p.opt.NoTable)
}

// usedNetworks returns the kind of network of each profile.
func (p *Prober) usedNetworks() (kinds []chat.Network) {
	for _, profile := range p.opt.Profiles {
		kinds = append(kinds, p.opt.Layers.Network(profile))
	}
	return kinds
}
