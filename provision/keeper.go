package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/trees"
	"github.com/chatd/chatd/verdict"
)

// keeperDir is the directory of the enforcer's socket and records, below the run
// directory: a reboot removes it with the sessions.
func (m *Manager) keeperDir() string { return filepath.Join(m.opt.Run, "keeper") }

// raiseKeeper starts the enforcer for the existing chats: a host that cannot enforce their rules
// reports that at start, and not at a wake. A profile without chats needs no enforcer: chatd
// ships profiles with rules, and not every host can enforce rules.
func (m *Manager) raiseKeeper(ctx context.Context) error {
	return m.keeperForChats(ctx, m.access.Load().Policies())
}

// keeperForChats starts the enforcer if these policies have rules for it in an existing chat.
func (m *Manager) keeperForChats(ctx context.Context, policies map[string]*filerules.Policy) error {
	book := verdict.NewBook(policies)
	for _, rec := range m.store.All() {
		if enforce.Needed(book.Policy(rec.Profile), rec.Agent) {
			return m.keeperOf(ctx, rec.Profile)
		}
	}
	return nil
}

// keeperForNew starts the enforcer before a chat is made whose rules need it: otherwise the chat
// could never be woken.
func (m *Manager) keeperForNew(ctx context.Context, spec chat.Spec) error {
	if !enforce.Needed(m.access.Load().Policy(spec.Profile), spec.Agent) {
		return nil
	}
	return m.keeperOf(ctx, spec.Profile)
}

func (m *Manager) keeperOf(ctx context.Context, profile string) error {
	if err := m.startKeeper(ctx); err != nil {
		return fmt.Errorf("cannot use the file rules of profile %s: %w", profile, err)
	}
	return nil
}

// keeperFindings starts the enforcer if any profile has rules for it, even before a chat needs
// it. If that fails, its finding names the profiles in which this host can make no chats.
func (m *Manager) keeperFindings(ctx context.Context) []string {
	names := m.keptProfiles()
	if len(names) == 0 {
		return nil
	}
	if err := m.startKeeper(ctx); err != nil {
		return []string{fmt.Sprintf("no chat with file rules can be made, in profiles %s: %v", strings.Join(names, ", "), err)}
	}
	return nil
}

// keptProfiles returns the profiles with rules that the kernel enforces.
func (m *Manager) keptProfiles() []string {
	policies := m.access.Load().Policies()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(policies)), func(name string) bool { return !enforce.NeededBy(policies[name]) })
}

func (m *Manager) keeperAnswers(ctx context.Context) bool {
	_, err := m.probeKeeper(ctx, enforce.Order{})
	return err == nil
}

// probeKeeper asks again if a worker of the enforcer ends meanwhile. The holder starts the next
// worker, so a second enforcer is not needed, and the rules of its sessions may still be
// enforced.
func (m *Manager) probeKeeper(ctx context.Context, order enforce.Order) (a enforce.Answer, err error) {
	order.Verb = enforce.Probe
	for range 3 {
		a, err = enforce.Ask(ctx, filepath.Join(m.keeperDir(), enforce.Socket), order)
		if !errors.Is(err, enforce.ErrEnded) {
			break
		}
	}
	return a, err
}

// startKeeper starts the enforcer unless one answers, and has its groups held. With systemd the
// enforcer is a unit of its own; elsewhere it is a child of this daemon, and outlives it.
func (m *Manager) startKeeper(ctx context.Context) error {
	m.keeper.Lock()
	defer m.keeper.Unlock()
	err := m.findKeeper(ctx)
	if err == nil {
		select {
		case m.raised <- struct{}{}:
		default: // already signalled
		}
	}
	return err
}

// findKeeper is startKeeper, under its lock.
func (m *Manager) findKeeper(ctx context.Context) error {
	if m.keeperAnswers(ctx) {
		return nil
	}
	if m.units && os.Getenv("INVOCATION_ID") != "" {
		return m.awaitKeeper(ctx)
	}
	if err := checkProgram(m.opt.Enforce); err != nil {
		return fmt.Errorf("cannot start the keeper of file rules: %w", err)
	}
	if err := trees.MakeRoot(m.keeperDir(), 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.keeperDir(), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot start the keeper of file rules: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(m.opt.Enforce, "--dir", m.keeperDir(), "--idle-end")
	cmd.Args[0] = "chatd-enforce"
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the keeper of file rules: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-ended:
			if m.keeperAnswers(ctx) { // another enforcer was started simultaneously
				return nil
			}
			return fmt.Errorf("cannot start the keeper of file rules: it ended: %s: %w", lastWords(log.Name()), chat.ErrUnsupported)
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the keeper of file rules: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
		if m.keeperAnswers(ctx) {
			return nil
		}
	}
}

// awaitKeeper waits for the enforcer's own unit: a process that chatd's service starts may not
// mount, and ends with the service.
func (m *Manager) awaitKeeper(ctx context.Context) error {
	for range 100 {
		if m.keeperAnswers(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the keeper of file rules: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("cannot keep file rules: chatd-keeper.service does not answer: systemctl start chatd-keeper: %w", chat.ErrUnsupported)
}

// lastWords returns the end of a log of chatd, for an error.
func lastWords(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return chat.QuoteOutput(string(b[max(0, len(b)-500):]))
}
