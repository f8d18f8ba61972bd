package roottest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// keepAwake gives all profiles keep_awake: an awake chat holds its place.
func keepAwake(opt provision.Options) provision.Options {
	for name, p := range opt.Profiles {
		p.KeepAwake = true
		opt.Profiles[name] = p
	}
	return opt
}

// program starts a program in the chat's terminal, and returns when it is there.
func program(t *testing.T, m *manager, c chat.Chat) {
	t.Helper()
	begin := func() {
		must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: "sleep 1000", Enter: true}))
	}
	begin()
	until(t, "the program runs", func() bool {
		if !goesOn(t, m, c) {
			begin()
		}
		all := must.Get(m.Processes(operator(t.Context()), c.ID))(t)
		for _, p := range all.Processes {
			if p.Name == "sleep" {
				return true
			}
		}
		return false
	})
}

// goesOn thaws a chat that was idle for too long before a busy host had begun what was typed. It
// is false for one that sleeps.
func goesOn(t *testing.T, m *manager, c chat.Chat) bool {
	t.Helper()
	got := must.Get(m.Get(operator(t.Context()), c.ID))(t)
	if got.Frozen == chat.FrozenUntilUsed {
		must.Get(m.Thaw(operator(t.Context()), c.ID))(t)
	}
	return got.Awake
}

// isAwake asks, which is no use of the chat.
func isAwake(t *testing.T, m *manager, c chat.Chat) bool {
	t.Helper()
	return must.Get(m.Get(operator(t.Context()), c.ID))(t).Awake
}

// TestSleepAfter: a chat that nobody uses is put to sleep, however often it is looked at; one in whose
// terminal a program runs is not. The log and the audit log say why, and the next input wakes it.
func TestSleepAfter(t *testing.T) {
	opt := options(t)
	edit(opt, "default", func(p *chat.Profile) { p.SleepAfter = chat.Duration(5 * time.Second) })
	m := open(t, opt)
	works, idle, other := create(t, m, "works", "default"), create(t, m, "idle", "default"), create(t, m, "other", "web")
	program(t, m, works)
	until(t, "the idle chat sleeps", func() bool { return !isAwake(t, m, idle) })
	if !isAwake(t, m, works) || !isAwake(t, m, other) {
		t.Errorf("awake are: one with a program %t, one without sleep_after %t", isAwake(t, m, works), isAwake(t, m, other))
	}
	log := must.Get(m.Log(operator(t.Context()), idle.ID, -1))(t)
	if !strings.Contains(string(log.Bytes()), "put to sleep: idle for ") {
		t.Errorf("its log says %q", log.Bytes())
	}
	until(t, "the audit log says why", func() bool { // a moment after the session has gone
		audit := auditText(t, opt)
		return strings.Contains(audit, `"action":"sleep","outcome":"done"`) && strings.Contains(audit, "sleep_after of its profile is 5s")
	})
	must.Do(t, m.Input(operator(t.Context()), idle.ID, chat.Input{Text: "echo back", Enter: true}))
	expect.True(t, isAwake(t, m, idle), "its next message did not wake it")
	must.Do(t, m.Input(operator(t.Context()), works.ID, chat.Input{Keys: []string{"C-c"}}))
	until(t, "a chat whose program has ended sleeps", func() bool { return !isAwake(t, m, works) })
}

// TestMakesRoom: on a full host the longest idle chat sleeps in the place of one that wakes, and never
// one at work; where all are, the refusal says so.
func TestMakesRoom(t *testing.T) {
	opt := options(t)
	opt.MaxAwake = 2
	m := open(t, opt)
	ctx := operator(t.Context())
	third := asleep(t, m, "third")
	first, works := create(t, m, "first", "default"), create(t, m, "works", "default")
	program(t, m, works)
	_, err := m.Wake(ctx, third.ID)
	if err != nil && (!errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "1 in use within 10s")) {
		t.Errorf("right after the use of the others: %v", err)
	}
	until(t, "the idle chat makes room", func() bool { return expect.Err(m.Wake(ctx, third.ID)) == nil })
	if isAwake(t, m, first) || !isAwake(t, m, works) {
		t.Errorf("awake are: the idle one %t, the one at work %t", isAwake(t, m, first), isAwake(t, m, works))
	}
	audit := auditText(t, opt)
	expect.True(t, strings.Contains(audit, "another chat needed its place"), "the audit log says\n%s", audit)
	program(t, m, third)
	_, err = m.Wake(ctx, first.ID)
	expect.Says(t, err, chat.ErrBusy, "max_awake: put one to sleep (2 at work (", "all are at work")
	who := string(works.ID) + `: the program "sleep"`
	if err != nil && !strings.Contains(err.Error(), who) {
		t.Errorf("it does not say who is at work: %v", err)
	}
}

// TestMemoryMakesRoom: where max_awake_memory is reached, an idle chat sleeps in the place of one
// that wakes, or gets more by a patch, with the memory_max of each one.
func TestMemoryMakesRoom(t *testing.T) {
	opt := options(t)
	for _, name := range []string{"default", "web"} {
		opt.MaxAwakeMemory += opt.Profiles[name].Limits.MemoryMax
	}
	m := open(t, opt)
	ctx := operator(t.Context())
	third := asleep(t, m, "third")
	first, works := create(t, m, "first", "web"), create(t, m, "works", "default")
	program(t, m, works)
	must.Get(m.Wake(ctx, third.ID))(t) // it waits until the first is idle
	expect.True(t, !isAwake(t, m, first) && isAwake(t, m, works),
		"the idle one is awake, or the one at work is not")
	program(t, m, third)
	_, err := m.Wake(ctx, first.ID)
	expect.Says(t, err, chat.ErrBusy, "exceeds max_awake_memory", "all are at work")
	// The one at work gets more when the other becomes idle, and none sleeps for what cannot be.
	most := fmt.Sprint(opt.MaxAwakeMemory)
	grow := func(to string) error {
		return expect.Err(patchAs(ctx, t, m, works.ID, `{"limits":{"memory_max":`+to+`}}`))
	}
	expect.Is(t, grow(most), chat.ErrBusy, "more memory while others are at work")
	must.Do(t, m.Input(ctx, third.ID, chat.Input{Keys: []string{"C-c"}}))
	err = grow(most + "0")
	expect.True(t, errors.Is(err, chat.ErrBusy) && isAwake(t, m, third), "more than there is: %v", err)
	until(t, "the idle one makes room", func() bool { return grow(most) == nil })
	expect.True(t, !isAwake(t, m, third) && isAwake(t, m, works),
		"after the patch the idle one is awake, or the one at work is not")
}

// TestInputsWakeOnce: however many inputs a chat gets simultaneously that sleeps, or is frozen, it
// wakes or is thawed once, and each is typed once.
func TestInputsWakeOnce(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	slept, frozen := asleep(t, m, "sleeps"), create(t, m, "frozen", "default")
	must.Get(m.Freeze(asBridge(t.Context(), "root"), frozen.ID))(t)
	for _, c := range []chat.Chat{slept, frozen} {
		const inputs = 50
		before := len(auditLines(t, opt, `"action":"wake","outcome":"intent"`, string(c.ID)))
		var all sync.WaitGroup
		for i := range inputs {
			all.Go(func() {
				in := chat.Input{Text: fmt.Sprintf("echo input-%d >> got", i), Enter: true}
				expect.Is(t, m.Input(operator(t.Context()), c.ID, in), nil, "input %d", i)
			})
		}
		all.Wait()
		var got []string
		until(t, "the shell has read all", func() bool {
			got = strings.Fields(text(filepath.Join(c.Home, "got")))
			return len(got) >= inputs
		})
		slices.Sort(got)
		distinct := slices.Compact(slices.Clone(got))
		expect.True(t, len(got) == inputs && len(distinct) == inputs,
			"%d inputs came, %d of them distinct: %q", len(got), len(distinct), got)
		woke := len(auditLines(t, opt, `"action":"wake","outcome":"intent"`, string(c.ID))) - before
		thawed := len(auditLines(t, opt, `"action":"thaw"`, string(c.ID)))
		expect.Equal(t, [2]int{woke, thawed}, map[string][2]int{"sleeps": {1, 0}, "frozen": {0, 1}}[c.ExternalID],
			"%s: how often it woke and was thawed", c.ExternalID)
	}
}

// TestWorkKeepsAwake: each kind of work keeps a chat awake beyond sleep_after, and to look at one
// does not.
func TestWorkKeepsAwake(t *testing.T) {
	opt := options(t)
	// A starved host must not take longer for a line.
	edit(opt, "default", func(p *chat.Profile) { p.SleepAfter = chat.Duration(15 * time.Second) })
	m := open(t, opt)
	ctx, leave := context.WithCancel(operator(t.Context()))
	var clients sync.WaitGroup
	defer clients.Wait()
	defer leave()
	long := chat.RunSpec{Argv: []string{"sleep", "600"}, Timeout: chat.Duration(10 * time.Minute)}
	typed := func(line string) func(chat.Chat) {
		return func(c chat.Chat) { must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: line, Enter: true})) }
	}
	works := map[string]func(chat.Chat){
		"a run":            func(c chat.Chat) { clients.Go(func() { _, _ = m.Run(ctx, c.ID, long) }) },
		"a background run": func(c chat.Chat) { startRun(t, m, c.ID, long) },
		"a client": func(c chat.Chat) {
			clients.Go(func() {
				a := chat.Attach{TTY: chat.TTY{Rows: 24, Cols: 80}, ReadOnly: true}
				_, _ = m.Attach(ctx, c.ID, a, func(string, []byte) {})
			})
		},
		"a caller that waits": func(c chat.Chat) {
			clients.Go(func() {
				w := &chat.Wait{Until: chat.UntilPrompt, Max: chat.Duration(10 * time.Minute)}
				_, _ = m.InputWait(ctx, c.ID, chat.Input{Text: "read x", Enter: true, Wait: w})
			})
		},
		"a schedule's run": func(c chat.Chat) {
			spec := chat.ScheduleSpec{Cron: "0 0 1 1 *", Argv: long.Argv, Timeout: long.Timeout}
			next := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
			s := must.Get(m.PutSchedule(ctx, c.ID, chat.NewSchedule{Spec: spec, Next: next}))(t)
			d := chat.DueSchedule{Chat: c.ID, ID: s.ID, At: next, Now: next.Add(time.Minute)}
			must.Get(m.BeginDue(ctx, d))(t)
		},
		"a program":     typed("sleep 1000"),
		"CPU time":      typed("while :; do :; done &"),
		"output":        typed("exec 5<><(:); while :; do echo .; read -t 1 -u 5; done"),
		"another input": nil,
	}
	chats := map[string]chat.Chat{}
	for what, begin := range works {
		c := create(t, m, what, "default")
		if chats[what] = c; begin != nil {
			begin(c)
		}
	}
	idle := create(t, m, "looked at", "default")
	until(t, "a chat that is only looked at sleeps", func() bool {
		must.Get(m.Log(ctx, idle.ID, -1))(t)
		must.Get(m.Processes(ctx, idle.ID))(t)
		typed("")(chats["another input"])
		return !isAwake(t, m, idle)
	})
	for what, c := range chats {
		expect.True(t, isAwake(t, m, c), "%s does not keep a chat awake", what)
	}
}
