package layers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// Result holds the results of one probe, at most one for each layer.
type Result struct {
	layers map[chat.LayerName]chat.Layer
	// network is the layer network in a session of each kind of network.
	network map[chat.Network]chat.Layer
}

// Merge makes one result of each layer: outside are those of tries outside of a session, inside
// those of a session whose network has no way out, own the layer network of one that has. Of two
// results for one layer the worse counts. The layer network is the worst of the kinds that are
// used.
func Merge(outside, inside []chat.Layer, own chat.Layer, used []chat.Network) Result {
	f := Result{layers: map[chat.LayerName]chat.Layer{}, network: map[chat.Network]chat.Layer{
		chat.NetworkOwn: own,
	}}
	for _, l := range slices.Concat(outside, inside) {
		if l.Name == chat.LayerNetwork {
			// Where the layer is left out, the session was in the host's network.
			f.network[chat.NetworkNone], f.network[chat.NetworkShared] = l, l
			continue
		}
		f.keep(l)
	}
	f.keep(f.worstNetwork(used))
	return f
}

// keep stores a result for a layer, if none is stored that is worse.
func (f Result) keep(l chat.Layer) {
	if old, ok := f.layers[l.Name]; ok {
		l = worse(old, l)
	}
	f.layers[l.Name] = l
}

// worstNetwork returns the worst result of the kinds of network that are used.
func (f Result) worstNetwork(used []chat.Network) chat.Layer {
	worst := chat.Layer{Name: chat.LayerNetwork, State: chat.LayerOn, At: time.Now()}
	for _, kind := range used {
		if l, ok := f.network[kind]; ok {
			worst = worse(worst, l)
		}
	}
	return worst
}

// states are from the worst to the best.
var states = []chat.LayerState{chat.LayerOff, chat.LayerUnknown, chat.LayerWeaker, chat.LayerOn}

// worse returns the weaker of two results for one layer; of equals the first, with
// both mechanisms named.
func worse(a, b chat.Layer) chat.Layer {
	if slices.Index(states, b.State) < slices.Index(states, a.State) {
		a, b = b, a
	}
	switch {
	case a.State != b.State || strings.Contains(a.By, b.By):
	case strings.Contains(b.By, a.By): // it says more
		a.By, a.Probe = b.By, b.Probe
	default:
		a.By = strings.TrimPrefix(a.By+", "+b.By, ", ")
		a.Probe = strings.TrimPrefix(a.Probe+"; "+b.Probe, "; ")
	}
	return a
}

// WithRun merges what a session's first command found with what a run in the session found: one
// result for each layer, the worse if both have one. Their walls may differ: chatd.service's own
// filters and limits hold for runs, which chatd starts.
func WithRun(session, run []chat.Layer) []chat.Layer {
	merged := slices.Clone(session)
	for _, l := range run {
		if l.State != chat.LayerOn {
			l.Probe = "in a run: " + l.Probe
		}
		i := slices.IndexFunc(merged, func(had chat.Layer) bool { return had.Name == l.Name })
		if i < 0 {
			merged = append(merged, l)
			continue
		}
		merged[i] = worse(merged[i], l)
	}
	return merged
}

// AddPAM names pam_namespace, which mounted the directories of the layer tmp. chatd-shim enter
// checks them before a session begins, and starts none without them.
func (f Result) AddPAM() {
	if l := f.layers[chat.LayerTmp]; stands(l) {
		l.By = "pam_namespace, " + l.By
		f.layers[l.Name] = l
	}
}

// stands reports whether the layer is in force, if only in a weaker form.
func stands(l chat.Layer) bool { return l.State == chat.LayerOn || l.State == chat.LayerWeaker }

// AddProc adds to the layer proc what holds outside a session. If the host's /proc is mounted
// with hidepid=invisible (proc(5)), a uid without a session, like uid, sees no other's processes
// either. Layers describe sessions, so this does not change the layer's state.
func (f Result) AddProc(uid uint32) {
	l := f.layers[chat.LayerProc]
	if !stands(l) {
		return
	}
	err := seesInit(uid)
	switch {
	case errors.Is(err, unix.ENOENT):
		l.By += ", and hidepid on the host"
		l.Probe += "; outside a session another user's process 1 is hidden"
	case err == nil:
		l.Probe += "; outside a session, on the host, every user sees all processes"
	default:
		l.Probe += "; outside a session: " + err.Error()
	}
	f.layers[l.Name] = l
}

// seesInit looks for process 1 as uid, in the /proc of process 1. A hardened unit may have a mount
// namespace with a /proc of its own.
func seesInit(uid uint32) error {
	proc, err := unix.Open("/proc/1/root/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the host's /proc: %w", err)
	}
	defer unix.Close(proc)
	return sys.AsUID(uid, func() error {
		var st unix.Stat_t
		return unix.Fstatat(proc, "1", &st, unix.AT_SYMLINK_NOFOLLOW)
	})
}
