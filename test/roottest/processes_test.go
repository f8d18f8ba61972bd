package roottest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// processesOf are those of a run; empty are the session's.
func processesOf(ctx context.Context, t *testing.T, m *manager, id chat.ID, run string) []chat.Process {
	t.Helper()
	list := must.Get(m.Processes(ctx, id))(t)
	return slices.DeleteFunc(list.Processes, func(p chat.Process) bool { return p.Run != run })
}

// TestProcesses: a caller that may reach a chat sees its processes by their pids and names in the
// chat, with what each uses, and no others.
func TestProcesses(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	a, b := create(t, m, "a", "default"), create(t, m, "b", "default")
	const name = "a) R 1\n\x1b[2J" // for a reader of stat, of lines, and of a terminal
	hostile := startRun(t, m, a.ID, chat.RunSpec{Argv: []string{"perl", "-e", "$0 = \"" + name +
		"\"; $| = 1; print \"pid $$.\"; sleep 600"}})
	busy := startRun(t, m, a.ID, chat.RunSpec{Command: "while :; do :; done"})
	still := startRun(t, m, a.ID, chat.RunSpec{Command: "kill -STOP $$"})

	var got []chat.Process
	until(t, "the hostile process is named", func() bool {
		got = processesOf(ctx, t, m, a.ID, hostile.ID)
		return len(got) == 1 && got[0].Name == name
	})
	awaitOutput(t, m, a.ID, hostile.ID, "pid "+strconv.Itoa(got[0].PID)+".")
	until(t, "it sleeps", func() bool {
		got = processesOf(ctx, t, m, a.ID, hostile.ID)
		return got[0].State == chat.ProcessSleeping && got[0].MemoryBytes > 0
	})
	until(t, "another is busy", func() bool {
		got := processesOf(ctx, t, m, a.ID, busy.ID)
		return len(got) == 1 && got[0].CPU > 0 && got[0].State == chat.ProcessRunning
	})
	until(t, "a third is stopped", func() bool {
		got := processesOf(ctx, t, m, a.ID, still.ID)
		return len(got) == 1 && got[0].State == chat.ProcessStopped
	})

	// One of the host that is in the chat's cgroup is not the chat's.
	foreign := exec.Command("sleep", "600")
	must.Do(t, foreign.Start())
	defer func() { _, _ = foreign.Process.Kill(), foreign.Wait() }()
	procs := filepath.Join(groupOf(t, a.ID), "session", "cgroup.procs")
	must.Do(t, os.WriteFile(procs, []byte(strconv.Itoa(foreign.Process.Pid)), 0o644))
	for id, runs := range map[chat.ID]bool{a.ID: true, b.ID: false} {
		list := must.Get(m.Processes(ctx, id))(t)
		bash := false
		for _, p := range list.Processes {
			bash = bash || p.Name == "bash" && p.Run == "" && p.PID > 0
			if p.Name == "sleep" || p.Run != "" && !runs {
				t.Errorf("of %s: %+v", id, p)
			}
		}
		expect.True(t, bash, "of %s, without its terminal: %+v", id, list)
	}

	owner := chat.WithCaller(t.Context(), chat.Caller{Name: a.Owner, Role: chat.RoleBridge})
	expect.Equal(t, len(processesOf(owner, t, m, a.ID, hostile.ID)), 1, "its owner sees … of a run")
	eve := chat.WithCaller(t.Context(), chat.Caller{Name: "eve", Role: chat.RoleBridge})
	if list, err := m.Processes(eve, a.ID); !errors.Is(err, chat.ErrNotFound) || len(list.Processes) > 0 {
		t.Errorf("another sees %+v, %v", list, err)
	}
	must.Get(m.Sleep(ctx, a.ID))(t)
	if list, err := m.Processes(ctx, a.ID); err != nil || list.Processes == nil || len(list.Processes) > 0 {
		t.Errorf("asleep: %+v, %v", list, err)
	}
}
