package roottest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestListPages: a page of chats that say much is about 1 MiB long, whatever limit is asked for, and
// the pages together have every chat once.
func TestListPages(t *testing.T) {
	opt := options(t)
	p := opt.Profiles["default"]
	for i := range 4000 { // each chat says them all
		p.Egress = append(p.Egress, parsedAllows(t, fmt.Sprintf("%060d.example.test:443", i))...)
	}
	opt.Profiles["default"] = p
	m := open(t, opt)
	ctx := operator(t.Context())
	const want = 6
	for i := range want {
		must.Do(t, expect.Err(m.Create(ctx, chat.Spec{ExternalID: fmt.Sprint(i), Awake: new(false)})))
	}
	seen := map[chat.ID]bool{}
	pages := 0
	for f := (chat.Filter{Limit: 1000}); ; pages++ {
		page := must.Get(m.List(ctx, f))(t)
		b := must.Get(json.Marshal(page))(t)
		expect.True(t, len(b) <= 3<<19, "a page of %d chats has %d bytes", len(page.Chats), len(b))
		for _, c := range page.Chats {
			seen[c.ID] = true
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	expect.True(t, len(seen) == want && pages >= 1,
		"%d chats in %d pages, want %d in several", len(seen), pages+1, want)
	for id := range seen {
		must.Do(t, m.Reap(ctx, id))
	}
}

// TestLabels: labels change as apitest says, through the API of a daemon and so through its manager,
// and hold after a restart.
func TestLabels(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	c := apitest.Labels(t.Context(), t, d)
	before := must.Get(d.Get(t.Context(), c.ID))(t)
	d.kill()
	d = startDaemon(t, opt, "")
	after := must.Get(d.Get(t.Context(), c.ID))(t)
	expect.True(t, len(after.Labels) != 0 && maps.Equal(after.Labels, before.Labels),
		"after kill -9: %v, before: %v", after.Labels, before.Labels)
}

// TestLabelsAreAudited: a change has its line, with the names of the labels and not what they
// say.
func TestLabelsAreAudited(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := asleep(t, m, "audited")
	value := "a secret of the caller"
	must.Get(m.Patch(ctx, c.ID, chat.Patch{Labels: map[string]*string{"colour": &value, "size": nil}}))(t)
	got := auditLines(t, opt, `"patch"`, `"done"`, string(c.ID), `"label.colour":"set"`, `"label.size":"removed"`, `"root"`)
	expect.True(t, len(got) == 1, "%d lines in the audit log: %q", len(got), got)
	got = auditLines(t, opt, value)
	expect.True(t, len(got) == 0, "the audit log has the value: %q", got)
}

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
	must.Get(m.Sleep(ctx, a.ID))(t)
	if list, err := m.Processes(ctx, a.ID); err != nil || list.Processes == nil || len(list.Processes) > 0 {
		t.Errorf("asleep: %+v, %v", list, err)
	}
}
