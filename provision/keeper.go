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
)

// keeperDir is where the keeper has its socket and what it notes, below the run
// directory: a reboot ends it with the sessions.
func (m *Manager) keeperDir() string { return filepath.Join(m.opt.Run, "keeper") }

// raiseKeeper starts the keeper of file rules for the chats that are there: a host that cannot
// keep their rules says so at start, and not when one is woken. A profile without chats needs
// no keeper: profiles with rules ship, and not every host can keep rules.
func (m *Manager) raiseKeeper(ctx context.Context) error {
	return m.keeperForChats(ctx, m.access.Load().policies)
}

// keeperForChats starts the keeper if these policies have rules for it to keep in a chat that is there.
func (m *Manager) keeperForChats(ctx context.Context, policies map[string]*filerules.Policy) error {
	book := newRuleBook(policies)
	for _, rec := range m.store.All() {
		if enforce.Needed(book.policy(rec.Profile), rec.Agent) {
			return m.keeperOf(ctx, rec.Profile)
		}
	}
	return nil
}

// keeperForNew starts the keeper before a chat is made whose rules need it, so that no chat is
// made that could not be woken.
func (m *Manager) keeperForNew(ctx context.Context, spec chat.Spec) error {
	if !enforce.Needed(m.access.Load().policy(spec.Profile), spec.Agent) {
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

// keeperFindings tries the keeper for the profiles that have rules for it, also where no chat
// needs it yet, and says in which ones this host can make no chats.
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

// keptProfiles are those with rules that the kernel keeps.
func (m *Manager) keptProfiles() []string {
	policies := m.access.Load().policies
	return slices.DeleteFunc(slices.Sorted(maps.Keys(policies)), func(name string) bool { return !enforce.NeededBy(policies[name]) })
}

func (m *Manager) keeperAnswers(ctx context.Context) bool {
	_, err := m.probeKeeper(ctx, enforce.Order{})
	return err == nil
}

// probeKeeper asks again where a worker of the enforcer ends meanwhile. That is no reason to start
// another enforcer, beside a holder that starts the next worker, nor to think that a session is
// not kept.
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

// startKeeper starts the keeper where none answers. With systemd one is there as a
// unit of its own; elsewhere this is it, and outlives this daemon.
func (m *Manager) startKeeper(ctx context.Context) error {
	m.keeper.Lock()
	defer m.keeper.Unlock()
	if m.keeperAnswers(ctx) {
		return nil
	}
	if m.units && os.Getenv("INVOCATION_ID") != "" {
		return m.awaitKeeper(ctx)
	}
	if err := checkProgram(m.opt.Enforce); err != nil {
		return fmt.Errorf("cannot start the keeper of file rules: %w", err)
	}
	if err := makeRootDir(m.keeperDir(), 0o700); err != nil {
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
			if m.keeperAnswers(ctx) { // another was started at the same moment
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

// awaitKeeper waits for the keeper that is a unit of its own: what this service starts
// may not mount, and ends with it.
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

// lastWords are the end of a log of ours, for an error.
func lastWords(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return chat.QuoteOutput(string(b[max(0, len(b)-500):]))
}
