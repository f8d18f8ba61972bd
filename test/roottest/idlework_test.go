package roottest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestInputsWakeOnce: however many inputs a sleeping chat gets simultaneously, it wakes once, and
// each is typed once.
func TestInputsWakeOnce(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	c := asleep(t, m, "many")
	const inputs = 50
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
		text, _ := os.ReadFile(filepath.Join(opt.Homes, string(c.ID), "got"))
		got = strings.Fields(string(text))
		return len(got) >= inputs
	})
	slices.Sort(got)
	if distinct := slices.Compact(slices.Clone(got)); len(got) != inputs || len(distinct) != inputs {
		t.Errorf("%d inputs came, %d of them distinct: %q", len(got), len(distinct), got)
	}
	expect.Equal(t, strings.Count(auditText(t, opt), `"action":"wake","outcome":"intent"`), 1,
		"the chat woke … times")
}

// TestWorkKeepsAwake: each kind of work keeps a chat awake beyond sleep_after, and to look at one
// does not.
func TestWorkKeepsAwake(t *testing.T) {
	opt := options(t)
	p := opt.Profiles["default"]
	p.SleepAfter = chat.Duration(15 * time.Second) // a starved host must not take longer for a line
	opt.Profiles["default"] = p
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
