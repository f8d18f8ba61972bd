package provision

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/console"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/tmux"
	"github.com/chatd/chatd/trees"
)

// session is one awake chat: bubblewrap's pid 1 and its descendants.
type session struct {
	id       chat.ID
	owner    string
	uid      uint32
	init     *sys.HeldProcess
	report   shims.Report
	terminal *tmux.Terminal
	// endedFor is the reason for which the daemon ended it without a request, nil if it did not.
	endedFor atomic.Pointer[string]
	// deafen stops the goroutine that reads the denials of its shims.
	deafen context.CancelFunc
	// log is the log of its terminal's output.
	log *console.Recording
	// adopted: an earlier chatd started it.
	adopted bool
	// met records the limits that it met.
	met limitsMet
	// invocation is systemd's name for this run of the unit; empty without systemd.
	invocation string
	// plan is the plan it was started from; exposed are the paths of the host that it sees.
	plan    *chat.Plan
	exposed []chat.Exposed
	// masked are the paths that bubblewrap masked and that the current rules still deny; nil: a
	// chatd that made no masks started it.
	masked atomic.Pointer[[]string]

	refreshing sync.Mutex
	refreshed  time.Time
	links      int64    // the value of [linkedPrograms.times] at the last refresh
	overlays   []string // where chatd's overlays are mounted in it; nil until looked for
}

// sessionFile holds the data by which a later chatd finds the session again. It lies in the run
// directory: a reboot, which ends every session, removes it too.
type sessionFile struct {
	Init       sys.Process  `json:"leader"`
	Report     shims.Report `json:"report"`
	Invocation string       `json:"invocation,omitempty"`
	Plan       *chat.Plan   `json:"plan,omitempty"`
	// Exposed is the part of Plan to which later commands confine themselves.
	Exposed []chat.Exposed `json:"exposed,omitempty"`
	Masked  *[]string      `json:"masked,omitempty"`
}

// errNoPrompt is a session that ended before its shell was at a prompt.
var errNoPrompt = errors.New("it ended before its prompt")

// promptPatience bounds the wait for a prompt; a chat whose own .bashrc takes longer still
// gets its session.
const promptPatience = 10 * time.Second

// startTimeout bounds each wait for the start of a session. Each path exposed to the session
// adds mountTimeout, because bubblewrap reads all mounts again for each mount that it makes.
const (
	startTimeout = 30 * time.Second
	mountTimeout = 50 * time.Millisecond
)

// timeout bounds each wait for the start of this session.
func (s *session) timeout() time.Duration {
	return startTimeout + time.Duration(len(s.exposed))*mountTimeout
}

func (m *Manager) sessionDir(id chat.ID) string { return filepath.Join(m.paths.sessions, string(id)) }

// createLimits makes the chat's cgroup with its limits. The CPU quota is set once the prompt is
// up: under a quarter CPU a session takes three times as long to reach it.
func (m *Manager) createLimits(_ context.Context, rec state.Record) error {
	return m.groups.Create(rec.ID, m.profile(rec).Limits)
}

// removeLimits kills the processes that remain in the cgroup and removes it.
func (m *Manager) removeLimits(ctx context.Context, rec state.Record) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := m.killGroup(ctx, rec); err != nil {
		return err
	}
	return m.groups.Remove(rec.ID)
}

// createSession starts the process tree of doc.go and returns when the shell's
// prompt is up and every limit stands.
func (m *Manager) createSession(ctx context.Context, rec state.Record) error {
	prompt, err := m.makeSessionDir(rec)
	if err != nil {
		return err
	}
	defer prompt.Close()
	if err := m.makeInstanceDirs(rec); err != nil { // the chat may have filled its disk, and can wake to empty it
		m.log.Warn("a chat wakes without its directories", "chat", rec.ID, "why", err)
	}
	s, err := m.startSession(ctx, rec, prompt, nil)
	if errors.Is(err, errNoPrompt) {
		m.log.Warn("starting a session without the chat's own ~/.bashrc", "chat", rec.ID, "why", err)
		s, err = m.startSession(ctx, rec, prompt, []string{shims.PlainShell + "=1"})
	}
	if err != nil {
		return err
	}
	if err := m.groups.LimitCPU(rec.ID, m.profile(rec).Limits); err != nil {
		return errors.Join(err, m.abandon(rec, s.init))
	}
	if err := m.writeSessionFile(s); err != nil {
		return errors.Join(err, m.abandon(rec, s.init))
	}
	m.keepSession(s)
	return nil
}

// abandon ends a session that did not come up, so that nothing of it remains when the caller
// undoes the earlier steps.
func (m *Manager) abandon(rec state.Record, l *sys.HeldProcess) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := m.killGroup(ctx, rec)
	if l == nil {
		return err
	}
	return errors.Join(err, l.WaitExit(ctx, rec.UID), l.Close())
}

// killGroup ends every process of the chat. With systemd it returns when the unit has ended,
// and with it the session's pid 1. The kernel keeps pid 1 until every process of its namespace
// is reaped; some of them are children of chatd (see [becomeSubreaper]).
func (m *Manager) killGroup(ctx context.Context, rec state.Record) error {
	if !m.units || rec.UID == 0 {
		return m.groups.Kill(ctx, rec.ID)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.groups.Kill(ctx, rec.ID) }()
	var errs []error
	for {
		select {
		case err := <-ended:
			return errors.Join(append(errs, err)...)
		case <-time.After(10 * time.Millisecond):
			if err := sys.CollectOrphans(rec.UID); err != nil && len(errs) == 0 {
				errs = append(errs, err)
			}
		}
	}
}

// keepSession registers the session and watches for its end.
func (m *Manager) keepSession(s *session) {
	m.hear(s)
	m.record(s)
	m.mu.Lock()
	m.sessions[s.id] = s
	m.mu.Unlock()
	go m.watch(s)
}

// removeSession ends every process of the chat by its cgroup: pid 1 of bubblewrap ignores
// SIGTERM, and a process that left its process group or its session is still in the cgroup.
func (m *Manager) removeSession(ctx context.Context, rec state.Record) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := m.killGroup(ctx, rec); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.sessions[rec.ID]
	delete(m.sessions, rec.ID)
	m.mu.Unlock()
	var err error
	if s != nil {
		err = errors.Join(s.init.WaitExit(ctx, rec.UID), s.init.Close())
	}
	return errors.Join(err, m.dropRules(ctx, rec.ID), trees.Remove(m.paths.sessions, string(rec.ID)))
}

// makeSessionDir makes the root-owned directory of the session and, in it, the fifo through
// which the shell reports its prompt. A fifo holds at most 64 KiB; a socket made by root would
// keep root's uid.
func (m *Manager) makeSessionDir(rec state.Record) (*os.File, error) {
	dir := m.sessionDir(rec.ID)
	if err := trees.Remove(m.paths.sessions, string(rec.ID)); err != nil {
		return nil, err
	}
	if err := trees.MakeRoot(dir, 0o711); err != nil {
		return nil, err
	}
	fifo := filepath.Join(dir, "prompt")
	if err := errors.Join(sys.MakeFIFO(fifo, rec.UID), sys.MakeFIFO(m.denialFIFO(rec.ID), rec.UID), sys.MakeFIFO(m.logFIFO(rec.ID), rec.UID), m.makeShimPolicy(rec)); err != nil {
		return nil, err
	}
	return sys.OpenFIFO(fifo)
}
