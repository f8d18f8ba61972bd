package background

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/session"
)

// Options are the directory of the runs' files, and the program and uid of their supervisors.
type Options struct {
	// Dir is root's directory of all files of runs.
	Dir string
	// Shim is the path of chatd-shim, under that name.
	Shim string
	// UID is a supervisor's uid and gid once the command runs. It owns nothing.
	UID    uint32
	Groups Groups
	Log    *slog.Logger // nil discards
}

// Groups are the cgroups of runs: methods that both backends of package cgroup have.
type Groups interface {
	session.Groups
	Runs(id chat.ID) ([]string, error)
	Members(id chat.ID) ([]int, error)
	OpenKill(id chat.ID, run string) (*os.File, error)
	TakeOut(ctx context.Context, pid int) error
}

// Runs are the runs by chat and id: those under way, and the background runs that are kept. They
// are indexed by chat, so another chat's run is simply not found.
type Runs struct {
	opt Options
	log *slog.Logger
	mu  sync.Mutex
	all map[chat.ID]map[string]*Run
}

// New returns runs without an entry; [Runs.Adopt] adds those of an earlier chatd.
func New(o Options) *Runs {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Runs{opt: o, log: log, all: map[chat.ID]map[string]*Run{}}
}

// About are the properties of a run that are fixed when it begins.
type About struct {
	Chat  chat.ID `json:"-"`
	Owner string  `json:"-"`
	UID   uint32  `json:"-"`
	// Info is the run as it began; Info.ID names its leaf too.
	Info  chat.Run      `json:"run"`
	Grace time.Duration `json:"grace"` // between SIGTERM and SIGKILL
	// Taken is when its schedule took the time that it runs for; zero if no schedule began it.
	Taken time.Time `json:"taken,omitzero"`
	// Refused is how many forks the chat had been refused when the run began.
	Refused uint64 `json:"refused,omitempty"`
}

// Run is one run.
type Run struct {
	About
	in  *Runs
	dir string
	// ctx ends when the run is told to end, over when it has ended.
	ctx, over     context.Context
	end, markOver context.CancelFunc
	// supervisor is that of a background run under way; [Run.Watch] closes it.
	supervisor *sys.ProcessHandle
	// adopted: an earlier chatd started it.
	adopted bool

	mu      sync.Mutex
	nsenter int
	stdin   *os.File
	ended   *End
	by      chat.EndedBy // see EndedBy
	denied  []chat.Denied
	// writing is held by the writer of stdin; see LockStdin.
	writing sync.Mutex
}

func (a *Runs) newRun(about About) *Run {
	r := &Run{About: about, in: a}
	r.dir = filepath.Join(a.opt.Dir, string(about.Chat), about.Info.ID)
	r.ctx, r.end = context.WithCancel(context.Background())
	r.over, r.markOver = context.WithCancel(context.Background())
	return r
}

// Admit registers a run under about.Info.ID, which is unique. It is [chat.ErrBusy] if the chat has
// [chat.MaxRuns] under way, or if its runs could keep more than [chat.MaxRunsOutput]. mayKeep
// checks the owner's share: used is the bytes that the owner's runs have or may keep, want those of
// this run.
func (a *Runs) Admit(about About, mayKeep func(used, want uint64) error) (*Run, error) {
	r := a.newRun(about)
	a.mu.Lock()
	defer a.mu.Unlock()
	n, kept := 0, 2*r.Info.OutputMax
	for _, other := range a.all[r.Chat] {
		if !other.IsOver() {
			n, kept = n+1, kept+2*other.Info.OutputMax
		}
	}
	if n >= chat.MaxRuns {
		return nil, fmt.Errorf("cannot run: %d runs of chat %s are under way, "+
			"the maximum: %w", n, r.Chat, chat.ErrBusy)
	}
	if kept > chat.MaxRunsOutput {
		return nil, fmt.Errorf("cannot run: output_max %d: with the %d runs of chat %s that are "+
			"under way %d bytes of output could be kept, want at most %d: %w",
			r.Info.OutputMax, n, r.Chat, kept, chat.MaxRunsOutput, chat.ErrBusy)
	}
	if want := r.kept(); want > 0 {
		if err := mayKeep(a.keptByOwner()[r.Owner], want); err != nil {
			return nil, err
		}
	}
	a.add(r)
	return r, nil
}

// add registers a run; the lock is held.
func (a *Runs) add(r *Run) {
	if a.all[r.Chat] == nil {
		a.all[r.Chat] = map[string]*Run{}
	}
	a.all[r.Chat][r.Info.ID] = r
}

// Forget removes a run's entry and marks the run as over. Its files stay: see [Runs.Drop].
func (a *Runs) Forget(r *Run) {
	r.finish(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all[r.Chat], r.Info.ID)
	if len(a.all[r.Chat]) == 0 {
		delete(a.all, r.Chat)
	}
}

// Find returns one run of a chat, or [chat.NoRun].
func (a *Runs) Find(id chat.ID, run string) (*Run, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.all[id][run]; r != nil {
		return r, nil
	}
	return nil, chat.NoRun(id, run)
}

// Of returns the runs of a chat in the order in which they began.
func (a *Runs) Of(id chat.ID) []*Run {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Collect(maps.Values(a.all[id]))
	slices.SortFunc(all, func(x, y *Run) int {
		return cmp.Or(x.Info.StartedAt.Compare(y.Info.StartedAt), cmp.Compare(x.Info.ID, y.Info.ID))
	})
	return all
}

// AnyUnderWay reports whether a run of the chat has not ended.
func (a *Runs) AnyUnderWay(id chat.ID) bool {
	return slices.ContainsFunc(a.Of(id), func(r *Run) bool { return !r.IsOver() })
}

// Kept is the bytes of output that the runs of each owner have, or may still store, in the
// directory of runs.
func (a *Runs) Kept() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keptByOwner()
}

// keptByOwner is Kept; the caller holds the lock.
func (a *Runs) keptByOwner() map[string]uint64 {
	kept := map[string]uint64{}
	for _, runs := range a.all {
		for _, r := range runs {
			kept[r.Owner] += r.kept()
		}
	}
	return kept
}

// kept is the bytes of output that the run has, or may still store, in its directory.
func (r *Run) kept() uint64 {
	if !r.Info.Background {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	max := r.Info.OutputMax
	switch {
	case !r.IsOver():
		return uint64(2 * max)
	case r.ended == nil:
		return 0
	}
	res := r.ended.Result
	return uint64(min(res.StdoutBytes, max) + min(res.StderrBytes, max))
}

// Show returns the run's current state.
func (r *Run) Show() chat.Run {
	info := r.Info
	r.mu.Lock()
	defer r.mu.Unlock()
	if info.Background && r.ended != nil {
		at, res := r.ended.At, r.ended.Result
		info.Result, info.State, info.EndedAt = &res, r.ended.State, &at
	}
	return info
}
