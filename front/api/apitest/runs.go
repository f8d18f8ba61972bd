package apitest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
)

// memoryRun is a background run. It ends immediately, except for "wait", which ends when its standard
// input is closed, or by a signal, and prints what it was sent.
type memoryRun struct {
	info  chat.Run
	out   [2]*os.File // what it printed, in files without a name
	stdin bytes.Buffer
	over  chan struct{}
}

// StartRun knows the commands of Run, and "wait".
func (m *Memory) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	spec.Background = true
	if err := spec.Validate(); err != nil {
		return chat.Run{}, err
	}
	c, err := m.Get(ctx, id)
	if err != nil {
		return chat.Run{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs == nil {
		m.runs = map[chat.ID][]*memoryRun{}
	}
	r := &memoryRun{over: make(chan struct{}), info: chat.Run{
		ID: fmt.Sprintf("run-%d", len(m.runs[id])+1), State: chat.RunRunning, Background: true,
		Command: spec.Command + strings.Join(spec.Argv, " "), StartedAt: m.Now().UTC(), Timeout: spec.Timeout,
		TTY:       spec.TTY,
		OutputMax: cmp.Or(spec.OutputMax, chat.DefaultOutputMax),
	}}
	for i := range r.out {
		if r.out[i], err = os.CreateTemp("", "chatd-stream-"); err == nil {
			err = os.Remove(r.out[i].Name())
		}
		if err != nil {
			return chat.Run{}, err
		}
	}
	m.runs[id] = append(m.runs[id], r)
	argv := spec.Argv
	if spec.Command != "" {
		argv = strings.Fields(spec.Command)
	}
	if argv[0] != "wait" {
		m.endRun(r, command(argv, spec, c.Home))
	}
	return r.info, nil
}

// endRun ends a run; the lock is held.
func (m *Memory) endRun(r *memoryRun, res chat.RunResult) {
	if r.info.State != chat.RunRunning {
		return
	}
	now := m.Now().UTC()
	for i, text := range []string{res.Stdout, res.Stderr} {
		_, _ = stream.NewFile(r.out[i], r.info.OutputMax).Write([]byte(text)) // a test sees what is missing
	}
	res.StdoutBytes, res.StderrBytes = int64(len(res.Stdout)), int64(len(res.Stderr))
	res.Stdout, res.Stderr = "", ""
	r.info.State, r.info.EndedAt, r.info.Result = chat.RunEnded, &now, &res
	close(r.over)
}

// runOf finds a run for its caller.
func (m *Memory) runOf(ctx context.Context, id chat.ID, run string) (*memoryRun, error) {
	if _, err := m.Get(ctx, id); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs[id] {
		if r.info.ID == run {
			return r, nil
		}
	}
	return nil, chat.NoRun(id, run)
}

// Processes are a shell, and one for each run that is under way, with its command for a name.
func (m *Memory) Processes(ctx context.Context, id chat.ID) (chat.Processes, error) {
	c, err := m.Get(ctx, id)
	out := chat.Processes{Processes: []chat.Process{}}
	if err != nil || !c.Awake {
		return out, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	add := func(name, run string) {
		out.Processes = append(out.Processes, chat.Process{
			PID: 1 + len(out.Processes), Name: name, State: chat.ProcessSleeping,
			MemoryBytes: 3 << 20, CPU: chat.Duration(30 * time.Millisecond), Run: run})
	}
	add("bash", "")
	for _, r := range m.runs[id] {
		if r.info.State == chat.RunRunning {
			add(r.info.Command, r.info.ID)
		}
	}
	return out, nil
}

// Runs lists the background runs.
func (m *Memory) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) {
	out := chat.Runs{Runs: []chat.Run{}}
	if _, err := m.Get(ctx, id); err != nil {
		return out, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs[id] {
		out.Runs = append(out.Runs, r.info)
	}
	return out, nil
}

// EndRun ends it by SIGTERM.
func (m *Memory) EndRun(ctx context.Context, id chat.ID, run string) error {
	return m.SignalRun(ctx, id, run, chat.RunSignal{Signal: "TERM"})
}

// SignalRun ends it by that signal, if it does not set a size.
func (m *Memory) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	if err := s.Validate(); err != nil {
		return err
	}
	r, err := m.runOf(ctx, id, run)
	if err != nil || s.TTY != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endRun(r, chat.RunResult{Exit: -1, Signal: "SIG" + s.Name(), Stdout: r.stdin.String()})
	return nil
}
