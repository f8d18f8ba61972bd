package provision

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/chatd/chatd/access"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/keeper"
)

// keeperDir is where the keeper has its socket and what it notes, below the run
// directory: a reboot ends it with the sessions.
func (m *Manager) keeperDir() string { return filepath.Join(m.opt.Run, "keeper") }

// raiseKeeper has the keeper of file rules there before the first session wants it: a
// host that cannot keep them says so at load, and not when a chat is woken.
func (m *Manager) raiseKeeper(ctx context.Context) error { return m.keeperFor(ctx, m.opt.Access) }

func (m *Manager) keeperFor(ctx context.Context, policies map[string]*access.Policy) error {
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if !keeper.NeededBy(policies[name]) {
			continue
		}
		if err := m.startKeeper(ctx); err != nil {
			return fmt.Errorf("cannot use the file rules of profile %s: %w", name, err)
		}
		return nil
	}
	return nil
}

func (m *Manager) keeperAnswers(ctx context.Context) bool {
	_, err := keeper.Ask(ctx, filepath.Join(m.keeperDir(), keeper.Socket), keeper.Order{Verb: keeper.Probe})
	return err == nil
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
	if err := makeRootDir(m.keeperDir(), 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.keeperDir(), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot start the keeper of file rules: %w", err)
	}
	defer log.Close()
	program := m.opt.Keeper
	if program == "" {
		program = "/proc/self/exe"
	}
	cmd := exec.Command(program, "keep", "--dir", m.keeperDir(), "--idle-end")
	cmd.Args[0] = "chatd"
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
