package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/state"
)

// liveRuns are the runs by chat and id: those under way, and those of the background that
// are kept. Who looks for a run of another chat looks in the wrong map, and learns nothing.
type liveRuns struct {
	mu   sync.Mutex
	all  map[chat.ID]map[string]*liveRun
	ctx  context.Context // ends when chatd does
	stop context.CancelFunc
	done sync.WaitGroup
}

// liveRun is one run. info.ID names its leaf too.
type liveRun struct {
	chat  chat.ID
	owner string
	// info is that of the beginning; what changes is below.
	info  chat.Run
	grace time.Duration
	// ctx ends when somebody ends the run; over is closed when it has ended.
	ctx  context.Context
	end  context.CancelFunc
	over chan struct{}
	// dir is where a background run has its files.
	dir string
	// taken is the time of its schedule that it is for; zero if it has none.
	taken time.Time
	// refused is how many forks the chat had been refused when the run began.
	refused uint64

	mu      sync.Mutex
	nsenter int
	stdin   *os.File
	ended   *endedRun
	by      chat.EndedBy // what ends it; empty is its command
	// writing is held by who writes to stdin.
	writing sync.Mutex
}

func newLiveRun(id chat.ID, info chat.Run, grace time.Duration) *liveRun {
	r := &liveRun{chat: id, info: info, grace: grace, over: make(chan struct{})}
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

// outputMax is how many bytes are kept of each stream: none of a run whose output goes to its
// caller as it comes. In the note of an older chatd it is not there.
func (r *liveRun) outputMax() int64 {
	if r.info.Background {
		return cmp.Or(r.info.OutputMax, chat.DefaultOutputMax)
	}
	return r.info.OutputMax
}

// admitRun makes a run known under an id of its own, or is [chat.ErrBusy].
func (m *Manager) admitRun(ctx context.Context, rec state.Record, spec chat.RunSpec) (*liveRun, error) {
	by := scheduleFrom(ctx)
	info := chat.Run{
		ID: m.newRun("run"), State: chat.RunRunning, Background: spec.Background, Command: shownCommand(spec),
		StartedAt: time.Now().UTC(), Timeout: spec.Timeout, TTY: spec.TTY, OutputMax: spec.OutputMax,
		Schedule: by.schedule,
	}
	r := newLiveRun(rec.ID, info, cmp.Or(spec.Grace, chat.DefaultGrace).D())
	r.taken, r.owner = by.taken, rec.Owner
	met, err := m.hits(rec.ID)
	if err != nil {
		return nil, err
	}
	r.refused = met.PidsRefused
	m.runs.mu.Lock()
	defer m.runs.mu.Unlock()
	n, kept := 0, 2*r.outputMax()
	for _, other := range m.runs.all[rec.ID] {
		if !other.isOver() {
			n, kept = n+1, kept+2*other.outputMax()
		}
	}
	if n >= chat.MaxRuns {
		return nil, fmt.Errorf("cannot run: %d runs of chat %s are under way, which is the most at once: %w", n, rec.ID, chat.ErrBusy)
	}
	if kept > chat.MaxRunsOutput {
		return nil, fmt.Errorf("cannot run: output_max %d: with the %d runs of chat %s that are under way %d bytes of output could be kept, want at most %d: %w",
			r.outputMax(), n, rec.ID, kept, chat.MaxRunsOutput, chat.ErrBusy)
	}
	if want := r.kept(); want > 0 {
		if err := m.bounded(ctx, quota.RunBytes, rec.Owner, m.runs.keptByOwner()[rec.Owner], want); err != nil {
			return nil, err
		}
	}
	m.runs.keep(r)
	return r, nil
}

// shownCommand is what is run, for whoever lists runs: cut, and as it was given. Whoever
// shows it on a terminal escapes it.
func shownCommand(spec chat.RunSpec) string {
	text := cmp.Or(spec.Command, strings.Join(spec.Argv, " "))
	if len(text) <= maxShownCommand {
		return text
	}
	cut := text[:maxShownCommand]
	return cut[:chat.WholeRunes([]byte(cut))] + "…"
}

// maxShownCommand is in bytes.
const maxShownCommand = 256

// keep adds a run; the lock is held.
func (l *liveRuns) keep(r *liveRun) {
	if l.all == nil {
		l.all = map[chat.ID]map[string]*liveRun{}
	}
	if l.all[r.chat] == nil {
		l.all[r.chat] = map[string]*liveRun{}
	}
	l.all[r.chat][r.info.ID] = r
}

// forgetRun is the end of a run that nobody can ask for any more.
func (m *Manager) forgetRun(r *liveRun) {
	r.finish(nil)
	m.runs.mu.Lock()
	defer m.runs.mu.Unlock()
	delete(m.runs.all[r.chat], r.info.ID)
	if len(m.runs.all[r.chat]) == 0 {
		delete(m.runs.all, r.chat)
	}
}

// finish notes that the run is over, and how.
func (r *liveRun) finish(e *endedRun) {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOver() {
		r.stdin, r.ended = nil, e
		close(r.over)
	}
}

func (r *liveRun) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// begun notes what is known once the command is on its way.
func (r *liveRun) begun(nsenter int, stdin *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nsenter, r.stdin = nsenter, stdin
}

func (r *liveRun) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nsenter
}

// detail is what the audit log has of a run.
func (r *liveRun) detail(spec chat.RunSpec) map[string]string {
	d := map[string]string{"run": r.info.ID}
	if spec.Background {
		d["background"] = "true"
	}
	return d
}

// runOf finds a run for its caller.
func (m *Manager) runOf(ctx context.Context, id chat.ID, run string) (state.Record, *liveRun, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	m.runs.mu.Lock()
	r := m.runs.all[id][run]
	m.runs.mu.Unlock()
	if r == nil {
		return rec, nil, chat.NoRun(id, run)
	}
	return rec, r, nil
}

func (m *Manager) runsOf(id chat.ID) []*liveRun {
	m.runs.mu.Lock()
	defer m.runs.mu.Unlock()
	var all []*liveRun
	for _, r := range m.runs.all[id] {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *liveRun) int {
		return cmp.Or(a.info.StartedAt.Compare(b.info.StartedAt), cmp.Compare(a.info.ID, b.info.ID))
	})
	return all
}

// Runs lists the chat's runs: those under way, and those of the background that are kept.
func (m *Manager) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) {
	if _, err := m.reach(ctx, id); err != nil {
		return chat.Runs{}, err
	}
	out := chat.Runs{Runs: []chat.Run{}}
	for _, r := range m.runsOf(id) {
		out.Runs = append(out.Runs, r.show())
	}
	return out, nil
}

// EndRun ends a run as its timeout does: SIGTERM, its grace, then all of its leaf. It returns when
// nothing of it is left.
func (m *Manager) EndRun(ctx context.Context, id chat.ID, run string) error {
	rec, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return err
	}
	detail := map[string]string{"run": run}
	if err := m.audit(ctx, rec, "end", "intent", detail); err != nil {
		return err
	}
	r.because(chat.EndedByRequest)
	r.end()
	select {
	case <-r.over:
	case <-ctx.Done():
		err = fmt.Errorf("cannot wait for the end of run %s: %w", chat.Quote(run), context.Cause(ctx))
	}
	return errors.Join(err, m.auditOutcome(ctx, rec, "end", detail, err))
}

// EndForeground ends every run whose caller waits for it, because chatd ends, and returns how
// many there were. Their callers have their results; background runs go on.
func (m *Manager) EndForeground() (ended int) {
	m.runs.mu.Lock()
	defer m.runs.mu.Unlock()
	for _, runs := range m.runs.all {
		for _, r := range runs {
			if !r.info.Background && !r.isOver() {
				r.because(chat.EndedByStop)
				r.end()
				ended++
			}
		}
	}
	return ended
}

// leaveRuns stops watching the background runs, which go on.
func (m *Manager) leaveRuns() {
	m.runs.stop()
	m.runs.done.Wait()
}
