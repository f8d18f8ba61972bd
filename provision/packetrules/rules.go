package packetrules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// Rules are the packet rules of all uids of chats. The exported fields do not change.
type Rules struct {
	// Claims refuses to start beside another chatd in this network namespace.
	Claims bool
	// Unwatched leaves a foreign change to the next [Rules.Mend]; tests alone set it.
	Unwatched bool
	UIDs      state.Range
	// DNSUID is that of sockets to DNS servers; no process has it. GID is that of chatd-egress.
	DNSUID, GID uint32
	Profiles    map[string]chat.Profile
	Policy      *policy.InForce
	Layers      *layers.Set
	Store       *state.Store
	Trail       *audit.Trail
	Log         *slog.Logger
	// Servers are those of DNS, until [Rules.SetServers]. wall is held.
	Servers []netip.AddrPort

	claimed *os.File         // may be nil
	table   *netpolicy.Table // nil on a host without the programs for it
	noTable error            // why table is nil
	// wall is held while the packet rules change, which may wait for the lock of iptables. walled
	// are the policies in force; it is read without wall.
	wall   sync.Mutex
	walled atomic.Pointer[[]netpolicy.Policy]
	// heard counts what was heard about changes of the packet rules; up to seen they were looked at
	// and put right.
	heard, seen atomic.Uint64
}

// Table is the kernel's table. It is nil, with the reason, on a host without the programs for it.
func (r *Rules) Table() (*netpolicy.Table, error) { return r.table, r.noTable }

// Close gives up the claim.
func (r *Rules) Close() error {
	if r.claimed == nil {
		return nil
	}
	return r.claimed.Close()
}

func (r *Rules) open(context.Context) error {
	table, err := netpolicy.Open(netpolicy.Options{Range: netpolicy.Range(r.UIDs), ProbeUID: r.UIDs.High})
	if errors.Is(err, chat.ErrUnsupported) {
		r.noTable = err
		r.Layers.Excuse(chat.LayerEgress)
		return nil
	}
	r.table = table
	return err
}

// Claim refuses to serve beside another chatd, whose packet rules would go.
func (r *Rules) Claim(context.Context) (err error) {
	if r.Claims && !r.Layers.Without(chat.LayerEgress) {
		r.claimed, err = netpolicy.Claim()
	}
	return err
}

// Raise writes the packet rules for every profile before the first chat. From here on they
// hold for every uid of the range, with or without an account.
//
// A host without the programs for packet rules lacks both layers that use them, which config may
// excuse.
func (r *Rules) Raise(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if r.table == nil {
		return nil
	}
	for name := range r.Profiles {
		if _, _, err := r.Store.EnsureBlock(name); err != nil && !layers.NoRoom(err) &&
			!errors.Is(err, chat.ErrBusy) {
			return err // a profile without a block gets no uids: only its new chats wait
		}
	}
	return r.Apply(ctx)
}

// ApplyNone applies the packet rules that allow nothing.
func (r *Rules) ApplyNone(ctx context.Context) error {
	if err := r.open(ctx); err != nil || r.table == nil {
		return err
	}
	return r.table.Apply(ctx, nil)
}

// RaiseAll makes sure that packet rules stand for every uid of the range: without a daemon nothing is
// allowed, beside one its policies stay. It needs no directory and no network. The error is
// [chat.ErrInvalid] for a range that meets uids of the host and [chat.ErrUnsupported] where a
// program is missing.
func RaiseAll(ctx context.Context, uids state.Range) error {
	if err := account.CheckRange(uids.Low, uids.High); err != nil {
		return err
	}
	// The wait for the xtables lock is longer than a daemon's: at boot nobody comes after it to try again.
	o := netpolicy.Options{Range: netpolicy.Range(uids), ProbeUID: uids.High, LockWait: time.Minute}
	table, err := netpolicy.Open(o)
	if err != nil {
		return err
	}
	return table.Raise(ctx)
}

// wallPause is how long a caller waits for packet rules that somebody just changed to be looked at.
// They are within a second unless iptables' lock is held.
const wallPause = 5 * time.Second

// Mend puts the rules back when somebody else changed them. They come first and the
// audit log second: a disk that is full must not keep the wall down.
func (r *Rules) Mend(ctx context.Context) error {
	if r.Layers.Without(chat.LayerEgress) {
		return nil
	}
	r.wall.Lock()
	upTo := r.heard.Load()
	drift, err := r.table.Mend(ctx)
	if err == nil {
		r.seen.Store(upTo)
	}
	r.wall.Unlock()
	if len(drift) == 0 {
		return err
	}
	r.Log.Warn("the packet rules were changed behind chatd's back, and put right", "drift", drift,
		"error", err)
	detail := map[string]string{"layer": string(chat.LayerEgress), "drift": fmt.Sprint(drift)}
	return r.Trail.Outcome(ctx, state.Record{}, "mend", detail, err)
}

// Watch looks at the rules as soon as somebody changes them. Between a flush and the next
// reconcile a chat with the host's network would be without a wall.
func (r *Rules) Watch(ctx context.Context) {
	if r.table == nil || r.Unwatched || r.Layers.Without(chat.LayerEgress) {
		return
	}
	err := netpolicy.Watch(ctx, func() { r.heard.Add(1) }, func(ctx context.Context) {
		if err := r.Mend(ctx); ctx.Err() == nil {
			r.Trail.Report("the packet rules", err)
		}
	})
	if err != nil {
		r.Log.Warn("changes of the packet rules are seen only once a minute", "why", err)
	}
}

// Await waits until the packet rules are as chatd wrote them, as far as it has heard:
// nothing new begins between a flush and its mending.
func (r *Rules) Await(ctx context.Context) error {
	for end := time.Now().Add(wallPause); r.seen.Load() < r.heard.Load(); {
		if why := chat.Sleep(ctx, 5*time.Millisecond); why != nil {
			return fmt.Errorf("cannot wait for the packet rules: %w: %w", why, chat.ErrBusy)
		}
		if time.Now().After(end) {
			return fmt.Errorf("cannot begin anything: somebody changed the packet rules, and they are not put right yet: see chatd doctor: %w", chat.ErrBusy)
		}
	}
	return nil
}
