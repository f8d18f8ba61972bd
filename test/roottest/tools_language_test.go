package roottest

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// toolVerdicts are whether each operation of the tools on a name is allowed, and whether a program
// may read it.
type toolVerdicts struct{ read, write, edit, bash bool }

// TestToolsObeyTheLanguage: seed 003's sample, word for word, and what else the language tells apart
// for tools: each operation is allowed by the rules for it, whatever the kernel keeps from programs.
func TestToolsObeyTheLanguage(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, mode: first-match, rules: [
  {allow: "~/.ssh/config", ops: [read]}, {deny: "~/.ssh/**"}, {deny: "~/w", ops: [write]},
  {deny: "~/e", ops: [edit]}, {deny: "~/b", ops: [bash]}, {deny: "~/r", ops: [read]}]}`)
	sample := must.Get(os.ReadFile("../../filerules/rulefile/testdata/sample1.json5"))(t)
	p := must.Get(rulefile.Load("sample1.json5", sample))(t)
	opt.FileRules["seed"] = p
	edit(opt, "seed", func(p *chat.Profile) { p.Limits.CPUQuota = 2 * p.Limits.CPUPeriod })
	m := open(t, opt)
	for _, tt := range []struct {
		profile, agent string
		want           map[string]toolVerdicts
	}{
		{"seed", "secrets-manager", map[string]toolVerdicts{
			".env": {true, true, true, false}, "deep/er/.env": {true, true, true, false},
			".gnupg/ring": {true, false, false, false}, ".ssh/id": {},
		}},
		{"seed", "main", map[string]toolVerdicts{
			".gnupg/ring": {}, "work/client/f": {}, ".ssh/id": {}, "secrets/k": {}, "plain": {true, true, true, true},
			".env": {}, "deep/er/.env": {}, // bash too: the seed denies it for three operations, its defaults for all
		}},
		{"ruled", "main", map[string]toolVerdicts{
			".ssh/config": {read: true}, ".ssh/id": {}, "w": {true, false, true, true},
			"e": {true, true, false, true}, "b": {true, true, true, false},
			"r": {false, true, true, true}, "plain": {true, true, true, true},
		}},
	} {
		c := agentOf(t, m, tt.profile, tt.agent)
		for name := range tt.want {
			putFile(t, c, name, secret)
		}
		for _, phase := range []string{"asleep", "awake"} {
			if phase == "awake" {
				wake(t, m, c.ID)
			}
			for name, want := range tt.want {
				expect.Equal(t, toolsOn(t, m, c, name, phase == "awake", want.bash), want,
					"%s, agent %s: %s", phase, tt.agent, name)
			}
		}
	}
}

// toolsOn does each operation on a name, and compares it with what explain says.
func toolsOn(t *testing.T, m *manager, c chat.Chat, name string, awake, bash bool) toolVerdicts {
	t.Helper()
	ctx, text := operator(t.Context()), secret
	_, readErr := m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: "~/" + name},
		func(filewire.Answer) io.Writer { return io.Discard })
	_, writeErr := m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: name, Content: &text}, nil)
	_, editErr := m.EditFile(ctx, c.ID,
		filewire.EditFile{Path: name, OldText: secret, NewText: secret})
	got := toolVerdicts{readErr == nil, writeErr == nil, editErr == nil, bash}
	if awake {
		got.bash = run(t, m, c.ID, "cat "+name).Exit == 0
	}
	for op, done := range map[string]bool{
		"read": got.read, "write": got.write, "edit": got.edit, "bash": got.bash,
	} {
		e := must.Get(m.Explain(ctx, c.ID, chat.Question{Path: name, Op: op}))(t)
		expect.True(t, (e.Verdict == "allow") == done,
			"explain says %+v of %s of %s, which was done: %t", e, op, name, done)
	}
	for _, err := range []error{readErr, writeErr, editErr} {
		var d *filewire.Denial
		if err != nil && (!errors.As(err, &d) || d.Place == "") {
			t.Errorf("%s: %v, want a denial with its rule", name, err)
		}
	}
	return got
}

// TestToolsSeeLittle: a tool sees the home, the temporary directories and a /proc that has no other
// process, awake and asleep: no program of the host, no network and nothing of chatd.
func TestToolsSeeLittle(t *testing.T) {
	opt := options(t)
	edit(opt, "default", func(p *chat.Profile) { p.AllowReadOutsideWorkspace = true })
	m := open(t, opt)
	inBothPhases(t, m, func(t *testing.T, c chat.Chat) {
		home := strings.SplitN(c.Home, "/", 3)[1]
		want := []string{"DIR:  " + home, "DIR:  proc", "DIR:  tmp", "DIR:  var"}
		slices.Sort(want)
		want = slices.Compact(want)
		got := listed(t, m, c.ID, "/")
		expect.True(t, slices.Equal(got, want), "a tool sees %q, want %q", got, want)
		for _, entry := range listed(t, m, c.ID, "/proc") {
			pid := strings.TrimPrefix(entry, "DIR:  ")
			if strings.Trim(pid, "0123456789") == "" && pid != "1" {
				t.Errorf("a tool sees process %s", pid)
			}
		}
		for _, name := range []string{"/usr/bin/env", "/etc/passwd", "/etc/hosts", "/etc/shadow", "/root",
			"/opt/chatd/chatd-shim", "/proc/vmstat", "/proc/interrupts", "/proc/sys/fs/file-nr"} {
			if text, err := get(t, m, c.ID, name); !errors.Is(err, chat.ErrNotFound) {
				t.Errorf("%s: %d bytes, %v", name, len(text), err)
			}
		}
	})
}

func listed(t *testing.T, m *manager, id chat.ID, name string) []string {
	t.Helper()
	var all strings.Builder
	must.Get(m.ListDir(operator(t.Context()), id, filewire.ListDir{Path: name},
		func(filewire.Answer) io.Writer { return &all }))(t)
	return strings.Split(strings.TrimSpace(all.String()), "\n")
}

// TestToolsOfAFullChat: the files of a chat at its limit of tasks, and of one that is frozen, are as
// readable and writable as ever.
func TestToolsOfAFullChat(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	c := create(t, m, "full", "default")
	put(t, m, c.ID, "f", "text")
	full := func(t *testing.T) {
		expect.Equal(t, must.Get(get(t, m, c.ID, "f"))(t), "text", "read")
		put(t, m, c.ID, "f", "text")
	}
	ctx := operator(t.Context())
	line := "set +m; while sleep 1000 & do :; done 2>/dev/null; echo > full"
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: line, Enter: true}))
	until(t, "its limit of tasks is met", func() bool {
		got, err := m.Get(ctx, c.ID)
		return err == nil && got.Usage != nil && got.Usage.Pids >= c.Limits.PidsMax
	})
	t.Run("tasks", full)
	must.Get(m.Freeze(asBridge(t.Context(), "root"), c.ID))(t)
	t.Run("frozen", full)
	must.Do(t, m.Reap(ctx, c.ID))
	gone(t, opt, c)
}
