package apitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

func explained(r chat.RunResult, spec chat.RunSpec, h chat.LimitHits) chat.RunResult {
	r.Explain("", spec.Timeout, h, chat.DefaultLimits())
	return r
}

// Command is how a Memory answers a run by itself. It knows "echo", "cat" (its stdin), "false", "pwd"
// (the cwd), "env" (what was added), "killed" (by SIGKILL), "slow" (times out), "dirty" (prints an
// escape sequence) and a few more. Anything else is 127.
func Command(spec chat.RunSpec, home string) chat.RunResult {
	argv := spec.Argv
	if spec.Command != "" {
		argv = strings.Fields(spec.Command)
	}
	return command(argv, spec, home)
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
		return explained(chat.RunResult{Exit: -1, Signal: "SIGKILL"}, spec, chat.LimitHits{OOMKills: 1})
	case "starved": // a child of it was ended, and another not born
		return explained(chat.RunResult{Exit: 1}, spec, chat.LimitHits{OOMKills: 1, PidsRefused: 3})
	case "slow":
		return explained(chat.RunResult{Exit: -1, Signal: "SIGKILL", TimedOut: true,
			WallMS: spec.Timeout.D().Milliseconds()}, spec, chat.LimitHits{})
	case "max": // how many bytes it may keep
		return chat.RunResult{Stdout: fmt.Sprintln(spec.OutputMax)}
	case "latin": // é in ISO 8859-1
		return chat.RunResult{Stdout: "caf\xe9\n", StdoutReplaced: 1}
	case "dirty":
		return chat.RunResult{Stdout: "a\x1b[31mb\n"}
	}
	return chat.RunResult{Exit: 127, Stderr: argv[0] + ": not found\n"}
}

// Input puts what was typed on the screen, and wakes the chat. A shell is in front, at its prompt.
func (m *Memory) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	if err := in.Validate(); err != nil {
		return err
	}
	_, err := m.change(ctx, id, func(c *chat.Chat) error {
		if o := in.OnlyIf; o != nil && (o.Prompt == chat.PromptAbsent || o.Program != "" && o.Program != "bash") {
			return fmt.Errorf("cannot type into the terminal of chat %s: want that %s, but \"bash\" is in front; "+
				"nothing was typed: %w", id, o, chat.ErrConflict)
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
	})
	return err
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
		return chat.Screen{}, fmt.Errorf("cannot show the screen of chat %s: it is asleep: %w", id,
			chat.ErrWrongPhase)
	}
	if c.Frozen == chat.FrozenUntilThawed {
		return chat.Screen{}, fmt.Errorf("cannot use chat %s: it is frozen until "+
			"an operator thaws it (chatd thaw): %w", id, chat.ErrBusy)
	}
	return chat.Screen{Rows: 24, Cols: 80, Program: "bash", Text: m.screens[id]}, nil
}

// Plan is a small plan of one mount, with a name in it that no terminal should see raw.
func (m *Memory) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) {
	c, err := m.Get(ctx, id)
	if err != nil {
		return chat.Plan{}, err
	}
	p := chat.Plan{
		ID: c.ID, Profile: c.Profile, User: c.User, UID: c.UID, Network: chat.NetworkNone, LandlockABI: 2,
		Mounts: []chat.Mount{
			{Type: chat.MountTmpfs, Target: "/", Mode: chat.ReadOnly},
			{Type: chat.MountBind, Source: c.Home, Target: c.Home, Mode: chat.ReadWrite},
			{Type: chat.MountBind, Source: "/data/a\x1b[31mb", Target: "/data/a", Mode: chat.ReadOnly,
				By: "expose_paths[0]"},
		},
		Landlock: []chat.PathRight{{Right: "write", Path: c.Home}}, Env: []string{"HOME", "PATH"},
		Namespaces: []string{"mount", "pid"},
		Seccomp:    []string{"mount"}, SeccompConditional: []string{"socket"}, Without: []chat.LayerName{},
		Notes: []string{"nothing matches"},
	}
	if c.Awake {
		at := c.CreatedAt
		p.StartedAt = &at
	}
	return p, nil
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

// Status counts the chats.
func (m *Memory) Status(ctx context.Context) (chat.Status, error) {
	h, err := m.Host(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.StatusIs
	st.Version, st.Chats, st.Awake, st.Asleep = h.Version, h.Chats, h.Awake, h.Chats-h.Awake
	return st, err
}

// Backup names an archive that is not there.
func (m *Memory) Backup(ctx context.Context) (chat.Backup, error) {
	h, err := m.Host(ctx)
	return chat.Backup{Path: "/var/lib/chatd/backup.tar", At: m.Now(), Chats: h.Chats, AuditSeq: 3}, err
}

// Rule makes deny what is asked before a file is touched; nil denies nothing.
func (m *Memory) Rule(deny func(op filewire.Op, name string) *filewire.Denial) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Deny = deny
}

// Trouble is what Status answers from now on, apart from the counts.
func (m *Memory) Trouble(st chat.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.StatusIs = st
}

// Layer gives the host one more layer.
func (m *Memory) Layer(l chat.Layer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.HostIs.Layers = append(m.HostIs.Layers, l)
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

// UseAfter uses a chat as soon as the chat reaped is.
func (m *Memory) UseAfter(reaped, used chat.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usedAfter[reaped] = used
}

// Work makes the chat do something from now on, and have that much on disk.
func (m *Memory) Work(id chat.ID, d chat.DiskUsage, what ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.chats[id]; ok {
		c.Work, c.Disk = what, &d
	}
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
