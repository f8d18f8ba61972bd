package apitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Run knows a few commands: "echo", "cat" (its stdin), "false", "pwd" (the cwd),
// "env" (what was added), "killed" (by SIGKILL), "slow" (times out), "dirty"
// (prints an escape sequence); anything else is 127.
func (m *Memory) Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error) {
	if err := spec.Validate(); err != nil {
		return chat.RunResult{}, err
	}
	c, err := m.Get(ctx, id)
	if err != nil {
		return chat.RunResult{}, err
	}
	if m.OnRun != nil {
		return m.OnRun(ctx, spec)
	}
	argv := spec.Argv
	if spec.Command != "" {
		argv = strings.Fields(spec.Command)
	}
	return command(argv, spec, c.Home), nil
}

func command(argv []string, spec chat.RunSpec, home string) chat.RunResult {
	switch argv[0] {
	case "echo":
		return chat.RunResult{Stdout: strings.Join(argv[1:], " ") + "\n"}
	case "cat":
		return chat.RunResult{Stdout: spec.Stdin}
	case "false":
		return chat.RunResult{Exit: 1, Stderr: "no\n"}
	case "pwd":
		return chat.RunResult{Stdout: spec.Dir(home) + "\n"}
	case "env":
		return chat.RunResult{Stdout: fmt.Sprintln(spec.Env)}
	case "killed":
		return chat.RunResult{Exit: -1, Signal: "SIGKILL", OOMKilled: true}
	case "slow":
		return chat.RunResult{Exit: -1, Signal: "SIGKILL", TimedOut: true, WallMS: spec.Timeout.D().Milliseconds()}
	case "dirty":
		return chat.RunResult{Stdout: "a\x1b[31mb\n"}
	}
	return chat.RunResult{Exit: 127, Stderr: argv[0] + ": not found\n"}
}

// Input puts what was typed on the screen, and wakes the chat.
func (m *Memory) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	if err := in.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err != nil {
		return err
	}
	setAwake(c, true)
	c.UsedAt = m.Now().UTC()
	m.screens[id] += in.Text
	for _, k := range in.Keys {
		m.screens[id] += "<" + k + ">"
	}
	if in.Enter {
		m.screens[id] += "\n"
	}
	return nil
}

// Screen shows what was typed.
func (m *Memory) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err != nil {
		return chat.Screen{}, err
	}
	if !c.Awake {
		return chat.Screen{}, fmt.Errorf("cannot show the screen of chat %s: it is asleep: %w", id, chat.ErrWrongPhase)
	}
	return chat.Screen{Rows: 24, Cols: 80, Text: m.screens[id]}, nil
}

// Host counts the chats.
func (m *Memory) Host(context.Context) (chat.Host, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.HostIs
	h.Layers = slices.Clone(h.Layers)
	for _, c := range m.chats {
		h.Chats++
		if c.Awake {
			h.Awake++
		}
	}
	return h, nil
}

// Lack makes the host miss a layer.
func (m *Memory) Lack(l chat.Layer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.HostIs.Missing = []chat.LayerName{l.Name}
	m.HostIs.Layers = append(m.HostIs.Layers, l)
}

// Stick makes every later Reap of id fail with err.
func (m *Memory) Stick(id chat.ID, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck[id] = err
}

// Age makes the chat as if created and last used d ago.
func (m *Memory) Age(id chat.ID, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.chats[id]; ok {
		c.CreatedAt, c.UsedAt = m.Now().Add(-d).UTC(), m.Now().Add(-d).UTC()
	}
}

// Damage sets the phase and the layers of a chat.
func (m *Memory) Damage(id chat.ID, phase chat.Phase, layers []chat.Layer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.chats[id]; ok {
		c.Phase, c.Layers = phase, layers
	}
}
