package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// session is one awake chat: bubblewrap's pid 1, and what is below it.
type session struct {
	id       chat.ID
	owner    string
	uid      uint32
	init     *heldProcess
	report   shims.Report
	terminal *tmux.Terminal
	// endedFor is why the daemon ended it of its own accord, nil if it did not.
	endedFor atomic.Pointer[string]
	// deafen ends listening to its shims.
	deafen context.CancelFunc
	// log is what its terminal prints.
	log *sessionLog
	// adopted: it was started by a chatd before this one.
	adopted bool
	// met is which limits it met.
	met limitsMet
	// invocation is systemd's name for this run of the unit; empty without systemd.
	invocation string
	// plan is what it was started from, and exposed what it sees of the host.
	plan    *chat.Plan
	exposed []shims.Exposed
	// masked are the denied paths over which bubblewrap put masks, as far as the rules of now
	// close them; nil: it was begun by a chatd that made none.
	masked atomic.Pointer[[]string]

	refreshing sync.Mutex
	refreshed  time.Time
	links      int64    // of [linkedPrograms.times], as of then
	overlays   []string // where chatd's overlays are mounted in it; nil until looked for
}

// sessionFile is what a later chatd needs to find the session again. It lies in
// the run directory, so that a reboot, which ends every session, ends it too.
type sessionFile struct {
	Init       process      `json:"leader"`
	Report     shims.Report `json:"report"`
	Invocation string       `json:"invocation,omitempty"`
	Plan       *chat.Plan   `json:"plan,omitempty"`
	// Exposed is of Plan what later commands confine themselves to.
	Exposed []shims.Exposed `json:"exposed,omitempty"`
	Masked  *[]string       `json:"masked,omitempty"`
}

// errNoPrompt is a session that ended before its shell was at a prompt.
var errNoPrompt = errors.New("it ended before its prompt")

// promptPatience is how long a prompt is waited for; a chat whose own .bashrc
// takes longer has a session all the same.
const promptPatience = 10 * time.Second

// startTimeout bounds each wait for a session that does not come up, and grows by
// mountTimeout with each path that is exposed to it: bubblewrap reads all mounts again for
// each one it makes.
const (
	startTimeout = 30 * time.Second
	mountTimeout = 50 * time.Millisecond
)

// timeout bounds each wait for the start of this session.
func (s *session) timeout() time.Duration {
	return startTimeout + time.Duration(len(s.exposed))*mountTimeout
}

func (m *Manager) sessionDir(id chat.ID) string { return filepath.Join(m.paths.sessions, string(id)) }

// createLimits makes the chat's cgroup with its limits. The CPU quota comes when
// the prompt is up: under a quarter CPU a session takes three times as long to it.
func (m *Manager) createLimits(_ context.Context, rec state.Record) error {
	return m.groups.Create(rec.ID, m.profile(rec).Limits)
}

// removeLimits ends whatever is left in the cgroup and removes it.
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

// abandon ends a session that did not come up, so that nothing of it is left for
// the steps that are taken back next.
func (m *Manager) abandon(rec state.Record, l *heldProcess) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := m.killGroup(ctx, rec)
	if l == nil {
		return err
	}
	return errors.Join(err, l.waitExit(ctx, rec.UID), l.Close())
}

// killGroup ends every process of the chat. Where systemd owns them it returns when
// the unit has ended, and so the session's pid 1, which the kernel keeps until the
// last of its namespace was collected: some of them are ours (see [becomeSubreaper]).
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
			if err := collectOrphans(rec.UID); err != nil && len(errs) == 0 {
				errs = append(errs, err)
			}
		}
	}
}

// keepSession makes the session known, and watches for its end.
func (m *Manager) keepSession(s *session) {
	m.hear(s)
	m.record(s)
	m.mu.Lock()
	m.sessions[s.id] = s
	m.mu.Unlock()
	go m.watch(s)
}

// removeSession ends every process of the chat by its cgroup: pid 1 of bubblewrap
// ignores SIGTERM, and a process that left its group or its session is still in
// the cgroup.
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
	var errs []error
	if s != nil {
		errs = append(errs, s.init.waitExit(ctx, rec.UID), s.init.Close())
	}
	errs = append(errs, m.dropRules(ctx, rec.ID))
	return errors.Join(append(errs, removeTrees(m.paths.sessions, string(rec.ID)))...)
}

// makeSessionDir makes the root-owned directory of the session and in it the
// fifo by which the shell says that its prompt is up. A fifo, because it is no
// socket (one made by root would keep root's uid) and holds at most 64 KiB.
func (m *Manager) makeSessionDir(rec state.Record) (*os.File, error) {
	dir := m.sessionDir(rec.ID)
	if err := removeTrees(m.paths.sessions, string(rec.ID)); err != nil {
		return nil, err
	}
	if err := makeRootDir(dir, 0o711); err != nil {
		return nil, err
	}
	fifo := filepath.Join(dir, "prompt")
	if err := errors.Join(makeFIFO(fifo, rec.UID), makeFIFO(m.denialFIFO(rec.ID), rec.UID), makeFIFO(m.logFIFO(rec.ID), rec.UID), m.makeShimPolicy(rec)); err != nil {
		return nil, err
	}
	return openFIFO(fifo)
}

// makeFIFO makes a fifo that belongs to uid.
func makeFIFO(name string, uid uint32) error {
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return fmt.Errorf("cannot make %s: %w", name, err)
	}
	if err := os.Lchown(name, int(uid), int(uid)); err != nil {
		return fmt.Errorf("cannot give %s to uid %d: %w", name, uid, err)
	}
	return nil
}

// openFIFO opens it for reading and writing, so that neither side waits for the other.
func openFIFO(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", name, err)
	}
	return f, nil
}
