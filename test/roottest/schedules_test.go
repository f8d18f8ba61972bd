package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/front/schedule"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// testClock stands still until a test moves it.
type testClock struct {
	mu    sync.Mutex
	now   time.Time
	moved bool
	wait  []chan time.Time
}

func (c *testClock) clock() schedule.Clock {
	return schedule.Clock{Now: c.Now, After: func(time.Duration) <-chan time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		ch := make(chan time.Time, 1)
		if c.moved { // perhaps since the time was read
			c.moved = false
			ch <- c.now
		} else {
			c.wait = append(c.wait, ch)
		}
		return ch
	}}
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.moved = c.now.Add(d), true
	for _, ch := range c.wait {
		ch <- c.now
	}
	c.wait = nil
}

// nine is right before nine o'clock.
func nine() *testClock {
	return &testClock{now: time.Date(2026, 11, 21, 8, 59, 30, 0, time.UTC)}
}

// clocked is m with a clock for its schedules, which ends before m does.
func clocked(t testing.TB, m *manager, opt runs.Options) *runs.Chats {
	t.Helper()
	k := must.Get(runs.Open(t.Context(), m.Manager, opt))(t)
	k.Begin()
	t.Cleanup(k.Close)
	return k
}

// front is m as callers meet it: with commands that are read.
func front(t testing.TB, m *manager) *runs.Chats { return clocked(t, m, runs.Options{}) }

func scheduled(t testing.TB, m verbs.Chats, id chat.ID, s chat.ScheduleSpec) chat.Schedule {
	t.Helper()
	out, err := m.AddSchedule(operator(t.Context()), id, s)
	must.True(t, err == nil, "%+v: %v", s, err)
	return out
}

// waitScheduled waits until a schedule has had this many runs and none is under way.
func waitScheduled(t testing.TB, m verbs.Chats, id chat.ID, name string, runs uint64) chat.Schedule {
	t.Helper()
	var s chat.Schedule
	var err error
	if !comes(func() bool {
		s, err = m.Schedule(operator(t.Context()), id, name)
		must.Do(t, err)
		return s.Runs >= runs && s.RunningSince == nil
	}) {
		t.Fatalf("after %d runs, want %d: %+v", s.Runs, runs, s)
	}
	return s
}

// TestSchedules: a schedule wakes its chat, runs as any run does, keeps its result, and is audited
// under its creator.
func TestSchedules(t *testing.T) {
	clock, opt := nine(), attackOptions(t)
	m := open(t, opt)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	c := asleep(t, m, "scheduled")
	mine := chat.WithCaller(t.Context(), chat.Caller{Name: "root", UID: 4711, Role: chat.RoleBridge})
	s, err := k.AddSchedule(mine, c.ID, chat.ScheduleSpec{Cron: "0 9 * * *", Command: "pwd; echo $A; cat; head -c 9000 /dev/zero | tr '\\0' x; echo; sleep 0.5; echo end >&2; exit 7", Cwd: "/tmp", Env: map[string]string{"A": "from env"}})
	must.Do(t, err)
	killed := scheduled(t, k, c.ID, chat.ScheduleSpec{At: "2026-11-21T09:00", Argv: []string{"sleep", "5301"}, Timeout: chat.Duration(300 * time.Millisecond)})
	another := asleep(t, m, "another")
	expect.Is(t, expect.Err(k.Schedule(operator(t.Context()), another.ID, s.ID)), chat.ErrNotFound, "under another chat")
	expect.True(t, s.Next != nil && s.Next.Format(time.RFC3339) == "2026-11-21T09:00:00Z",
		"next is %v", s.Next)
	clock.move(29 * time.Second)
	got, err := m.Get(mine, c.ID)
	expect.True(t, err == nil && !got.Awake, "before its time the chat is awake: %v, %v", got.Awake, err)
	clock.move(15 * time.Second)
	s = waitScheduled(t, k, c.ID, s.ID, 1)
	l := s.Last
	if l == nil || l.Exit != 7 || l.Error != "" || l.TimedOut || len(l.Output) > chat.MaxTail || !strings.HasSuffix(l.Output, "xx\nend\n") || l.OutputBytes != int64(len("/tmp\nfrom env\n")+9001+4) || l.DueAt.Minute() != 0 {
		t.Errorf("%+v", l)
	}
	if s.Next == nil || s.Next.Format(time.RFC3339) != "2026-11-22T09:00:00Z" || s.Runs != 1 || s.Missed+s.Skipped != 0 {
		t.Errorf("%+v", s)
	}
	cut := waitScheduled(t, k, c.ID, killed.ID, 1)
	expect.True(t, cut.Last.TimedOut && cut.Next == nil, "%+v, %+v", cut, cut.Last)
	got, err = m.Get(mine, c.ID)
	expect.True(t, err == nil && got.Awake, "the chat is awake: %v, %v", got.Awake, err)
	audit := auditText(t, opt)
	for _, want := range []string{`"action":"schedule","outcome":"done"`, `"action":"wake","outcome":"done"`, `"action":"run","outcome":"intent"`, `"action":"run","outcome":"done"`} {
		found := false
		for _, line := range strings.Split(audit, "\n") {
			from := strings.Contains(line, `"schedule":"`+s.ID+`"`) && strings.Contains(line, `"uid":4711`)
			if strings.Contains(want, "wake") { // which of the two woke it is not said
				from = strings.Contains(line, `"schedule":"`)
			}
			found = found || strings.Contains(line, want) && from
		}
		expect.True(t, found, "no audit line with %s, the schedule and its caller", want)
	}
}

func auditText(t testing.TB, opt provision.Options) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join(opt.State, "audit.jsonl")))(t))
}

// TestSchedulesOneAtATime: the schedules of one chat never overlap; what comes due while
// its own run goes on is skipped and counted. Another chat does not wait.
func TestSchedulesOneAtATime(t *testing.T) {
	clock, opt := nine(), attackOptions(t)
	m := open(t, opt)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	a, b := create(t, m, "one a", "default"), create(t, m, "one b", "default")
	var ids []string
	for range 4 {
		ids = append(ids, scheduled(t, k, a.ID, chat.ScheduleSpec{At: "2026-11-21T09:00", Command: "mkdir lock || echo overlap; sleep 0.3; rmdir lock"}).ID)
	}
	long := scheduled(t, k, b.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "touch began; until test -e go; do sleep 0.1; done"})
	clock.move(70 * time.Second)
	for _, id := range ids {
		if s := waitScheduled(t, k, a.ID, id, 1); s.Last.Exit != 0 || strings.Contains(s.Last.Output, "overlap") {
			t.Errorf("%+v", s.Last)
		}
	}
	until(t, "the long run begins", exists(filepath.Join(b.Home, "began")))
	if all, err := m.Runs(operator(t.Context()), b.ID); err != nil || len(all.Runs) != 1 || all.Runs[0].Timeout.D() != 5*time.Minute {
		t.Errorf("the run of a schedule that says no timeout: %+v, %v", all, err)
	}
	clock.move(time.Minute)
	clock.move(2 * time.Minute)
	comes(func() bool {
		s, err := k.Schedule(operator(t.Context()), b.ID, long.ID)
		return err != nil || s.Skipped == 3
	})
	// Whatever clock there is: a schedule has one run, and ends with it.
	early := chat.DueSchedule{Chat: b.ID, ID: long.ID, At: clock.Now(), Now: clock.Now()}
	expect.Is(t, expect.Err(m.BeginDue(t.Context(), early)), chat.ErrWrongPhase, "a run beside it")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, m.AwaitDue(gone, early), context.Canceled, "its end")
	must.Do(t, os.WriteFile(filepath.Join(b.Home, "go"), nil, 0o666))
	s := waitScheduled(t, k, b.ID, long.ID, 1)
	comes(func() bool { // what was skipped is written down after the end of the run
		now := must.Get(k.Schedule(operator(t.Context()), b.ID, long.ID))(t)
		s = now
		return s.Skipped == 3
	})
	if s.Skipped != 3 || s.Runs != 1 || s.Missed != 0 {
		t.Errorf("%+v", s)
	} else {
		early.At = s.Last.DueAt
		expect.Is(t, expect.Err(m.BeginDue(t.Context(), early)), chat.ErrWrongPhase,
			"the same time again")
	}
}

// TestSchedulesDenied: what is denied is not kept; what is denied by the time it is due
// does not run, is audited, and is kept as the last result. A chat that cannot be woken
// says so.
func TestSchedulesDenied(t *testing.T) {
	clock, opt := nine(), keepAwake(guardedOptions(t))
	opt.MaxAwake = 1
	m := open(t, opt)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	c := create(t, m, "denied", "guarded")
	ctx := operator(t.Context())
	_, err := m.Sleep(ctx, c.ID)
	must.Do(t, err)
	_, err = k.AddSchedule(ctx, c.ID, chat.ScheduleSpec{Cron: "@daily", Command: "touch ran; sudo id"})
	expect.Says(t, err, chat.ErrDenied, "rule privileges", "")
	s := scheduled(t, k, c.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "touch ran; cat keys/a"})
	rules, err := rulefile.Load("rules.yaml", []byte("access:\n  useDefaults: false\n  rules:\n  - {deny: 'keys/**', ops: [bash]}\n"))
	must.Do(t, err)
	must.Do(t, m.Reload(ctx, map[string]*filerules.Policy{"guarded": rules}))
	clock.move(2 * time.Minute)
	s = waitScheduled(t, k, c.ID, s.ID, 1)
	if s.Last.DeniedBy != "deny keys/** [bash]" && !strings.Contains(s.Last.DeniedBy, "keys/**") || s.Last.Exit != -1 || !strings.Contains(s.Last.Error, "denied") || s.Next == nil {
		t.Errorf("%+v", s.Last)
	}
	expect.True(t, expect.Err(os.Stat(filepath.Join(c.Home, "ran"))) != nil, "it ran")
	if audit := auditText(t, opt); !strings.Contains(audit, `"action":"run","outcome":"denied"`) || !strings.Contains(audit, "rules.yaml:4") {
		t.Error("the denial is not in the audit log")
	}
	must.Do(t, m.Reload(ctx, nil))
	awake := create(t, m, "the one that may be awake", "default")
	clock.move(time.Minute)
	s = waitScheduled(t, k, c.ID, s.ID, 2)
	expect.True(t, s.Last.Exit == -1 && strings.Contains(s.Last.Error, "busy") && s.Last.DeniedBy == "",
		"a chat that cannot be woken: %+v", s.Last)
	must.Do(t, k.Reap(ctx, awake.ID))
	clock.move(time.Minute)
	if s = waitScheduled(t, k, c.ID, s.ID, 3); s.Last.Error != "" {
		t.Errorf("and when it can again: %+v", s.Last)
	}
}

// TestSchedulesRestart: they are there after a restart. What was missed meanwhile is
// caught up by one run and the rest counted; a run that was cut off says so; a clock
// that was set back stops nothing. At reap they are gone, and stay gone.
func TestSchedulesRestart(t *testing.T) {
	clock, opt := nine(), attackOptions(t)
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	c := asleep(t, m, "restarted")
	ctx := operator(t.Context())
	minutely := scheduled(t, k, c.ID, chat.ScheduleSpec{Cron: "* * * * *", Command: "echo x >>count; sleep 0.1"})
	once := scheduled(t, k, c.ID, chat.ScheduleSpec{At: "2026-11-21T12:00", Command: "true"})
	cut := scheduled(t, k, c.ID, chat.ScheduleSpec{At: "2026-11-21T08:59:45", Command: "sleep 5302"})
	clock.move(16 * time.Second)
	until(t, "the run that is cut off begins", func() bool { // its time is taken before
		all, err := m.Runs(ctx, c.ID)
		return err != nil || slices.ContainsFunc(all.Runs, func(r chat.Run) bool { return r.Schedule == cut.ID })
	})
	k.Close()
	must.Do(t, m.Close())
	// As a reboot does: nothing is there that says how it went.
	must.Do(t, os.RemoveAll(filepath.Join(opt.Run, "runs", string(c.ID))))
	clock.move(24 * time.Hour)
	m = open(t, opt)
	k = clocked(t, m, runs.Options{Clock: clock.clock()})
	s := waitScheduled(t, k, c.ID, minutely.ID, 1)
	if s.Runs != 1 || s.Missed != 1000 || s.Last.Error != "" || !s.Next.After(clock.Now()) || s.Next.Sub(clock.Now()) > time.Minute {
		t.Errorf("%+v", s)
	}
	if s := waitScheduled(t, k, c.ID, once.ID, 1); s.Last.Error != "" || s.Next != nil || s.Last.DueAt.Hour() != 12 {
		t.Errorf("%+v, %+v", s, s.Last)
	}
	if s := waitScheduled(t, k, c.ID, cut.ID, 1); s.Last.Error != "chatd or the host ended while it ran" || s.Runs != 1 || s.Last.DueAt.Second() != 45 {
		t.Errorf("%+v, %+v", s, s.Last)
	}
	clock.move(-48 * time.Hour)
	until(t, "it is seen", func() bool {
		s, err = k.Schedule(ctx, c.ID, minutely.ID)
		return err != nil || s.Next.Before(clock.Now().Add(time.Hour))
	})
	clock.move(time.Minute)
	clock.move(10 * time.Second) // the most that a cron time is spread
	if s := waitScheduled(t, k, c.ID, minutely.ID, 2); s.Last.Error != "" {
		t.Errorf("after the clock was set back: %+v", s.Last)
	}
	must.Do(t, k.Reap(ctx, c.ID))
	again := asleep(t, m, "restarted")
	if all, err := k.Schedules(ctx, again.ID); err != nil || len(all.Schedules) != 0 || again.ID != c.ID {
		t.Errorf("the chat that comes after it has %+v, %v", all, err)
	}
}

// TestSchedulesStopped: what a chatd that is told to stop took and had not begun, for the chat
// was still waking, the next one runs: once, for the same time.
func TestSchedulesStopped(t *testing.T) {
	clock, opt := nine(), attackOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	c := asleep(t, m, "stopped")
	must.Do(t, os.WriteFile(filepath.Join(c.Home, ".bashrc"), []byte("touch waits; until test -e go; do sleep 0.1; done\n"), 0o644))
	s := scheduled(t, k, c.ID, chat.ScheduleSpec{At: "2026-11-21T08:59:45", Command: "echo x >>count"})
	clock.move(16 * time.Second)
	until(t, "the shell is on its way to its prompt", exists(filepath.Join(c.Home, "waits")))
	k.Close()
	must.Do(t, m.Close())
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "go"), nil, 0o666))
	clock.move(time.Hour)
	m = open(t, opt)
	k = clocked(t, m, runs.Options{Clock: clock.clock()})
	s = waitScheduled(t, k, c.ID, s.ID, 1)
	if l := s.Last; l == nil || l.Error != "" || l.Exit != 0 || l.DueAt.Second() != 45 || s.Runs != 1 || s.Missed+s.Skipped != 0 || s.Next != nil {
		t.Errorf("%+v, %+v", s, l)
	}
	count, err := os.ReadFile(filepath.Join(c.Home, "count"))
	expect.True(t, string(count) == "x\n" && err == nil, "it ran %q, %v", count, err)
}

// TestSchedulesGoOn: a run that is under way when chatd is killed goes on, is waited for by the
// next chatd, and is no second run of its time; so is one that ends while there is no chatd. What
// it printed is kept until the schedule has run again.
func TestSchedulesGoOn(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	const command = "echo x >>count; until test -e go; do sleep 0.1; done; echo out; echo err >&2; echo end; touch over; exit 3"
	var chats [2]chat.Chat
	var all [2]chat.Schedule
	for i := range chats {
		var err error
		chats[i], _, err = d.Create(t.Context(), chat.Spec{ExternalID: fmt.Sprint("goes on ", i)})
		must.Do(t, err)
		for wait := 2 * time.Second; ; wait *= 2 {
			due := time.Now().Add(wait).Truncate(time.Second)
			all[i], err = d.AddSchedule(t.Context(), chats[i].ID, chat.ScheduleSpec{At: due.UTC().Format(time.RFC3339), Command: command})
			if wait > longEnough || !errors.Is(err, chat.ErrInvalid) {
				break // else the time was over already
			}
		}
		must.Do(t, err)
		until(t, "it begins", exists(filepath.Join(chats[i].Home, "count")))
		// The command may be there a moment before chatd has recorded its run, without which it
		// ends.
		until(t, "its run is recorded", func() bool {
			recorded, err := filepath.Glob(filepath.Join(opt.Run, "runs", string(chats[i].ID), "*", "run.json"))
			must.Do(t, err)
			return len(recorded) == 1
		})
	}
	d.kill()
	must.Do(t, os.WriteFile(filepath.Join(chats[0].Home, "go"), nil, 0o666))
	until(t, "one ends without chatd", exists(filepath.Join(chats[0].Home, "over")))
	d = startDaemon(t, opt, "")
	t.Cleanup(func() {
		for _, c := range chats {
			_ = d.Reap(operator(context.Background()), c.ID)
		}
	})
	s, err := d.Schedule(t.Context(), chats[1].ID, all[1].ID)
	must.Do(t, err)
	runs, err := d.Runs(t.Context(), chats[1].ID)
	must.Do(t, err)
	if s.RunningSince == nil || s.Last != nil || len(runs.Runs) != 1 || runs.Runs[0].Schedule != s.ID || runs.Runs[0].State != chat.RunRunning {
		t.Errorf("the one that goes on: %+v, its runs %+v", s, runs)
	}
	must.Do(t, os.WriteFile(filepath.Join(chats[1].Home, "go"), nil, 0o666))
	for i, c := range chats {
		until(t, "its end is known", func() bool {
			s, err = d.Schedule(t.Context(), c.ID, all[i].ID)
			must.Do(t, err)
			return s.Last != nil
		})
		l := s.Last
		if s.Runs != 1 || s.RunningSince != nil || l.Exit != 3 || l.Error != "" || l.Output != "out\nerr\nend\n" || l.OutputBytes != int64(len(l.Output)) || !l.DueAt.Equal(*all[i].Next) {
			t.Errorf("%d: %+v, %+v", i, s, l)
		}
		if count, err := os.ReadFile(filepath.Join(c.Home, "count")); string(count) != "x\n" || err != nil {
			t.Errorf("%d: it ran %q, %v", i, count, err)
		}
		r, err := d.ShowRun(t.Context(), c.ID, l.Run)
		expect.True(t, err == nil && r.Schedule == s.ID && r.Result.Stdout == l.Output,
			"%d: its run is %+v, %v", i, r, err)
	}
}

// TestSchedulesKeepOneRun: the last run of each schedule is kept, and no other.
func TestSchedulesKeepOneRun(t *testing.T) {
	clock, opt := nine(), attackOptions(t)
	m := open(t, opt)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	c := create(t, m, "keeps one", "default")
	ids := []string{}
	for range 2 {
		ids = append(ids, scheduled(t, k, c.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "true"}).ID)
	}
	mine, err := m.StartRun(operator(t.Context()), c.ID, chat.RunSpec{Command: "true"})
	must.Do(t, err)
	skipped := map[string]uint64{}
	for n := range uint64(3) {
		clock.move(time.Minute)
		for _, name := range ids {
			until(t, "it ran once more", func() bool {
				s := must.Get(k.Schedule(operator(t.Context()), c.ID, name))(t)
				// A run's end is told a moment before its schedule may begin again; with this clock
				// the next time can fall in between, and is skipped.
				if s.Skipped > skipped[name] {
					skipped[name] = s.Skipped
					clock.move(time.Minute)
				}
				return s.Runs > n && s.RunningSince == nil
			})
		}
	}
	var got chat.Runs
	var want map[string]bool
	if !comes(func() bool {
		want = map[string]bool{mine.ID: true}
		for _, name := range ids {
			want[waitScheduled(t, k, c.ID, name, 3).Last.Run] = true
		}
		got, err = m.Runs(operator(t.Context()), c.ID)
		must.Do(t, err)
		return len(got.Runs) == len(want)
	}) {
		t.Errorf("kept are %+v", got)
	}
	for _, r := range got.Runs {
		expect.True(t, want[r.ID], "kept is %+v", r)
	}
}

// TestSchedulesKilled: a chatd that is killed before the time, and started after it, runs
// what came due, once.
func TestSchedulesKilled(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "killed"})
	must.Do(t, err)
	var s chat.Schedule
	var due time.Time
	for wait := 2 * time.Second; ; wait *= 2 { // until it is killed before the time
		due = time.Now().Add(wait).Truncate(time.Second)
		s, err = d.AddSchedule(t.Context(), c.ID, chat.ScheduleSpec{At: due.UTC().Format(time.RFC3339), Command: "echo x >>count"})
		if wait < longEnough && errors.Is(err, chat.ErrInvalid) {
			continue // the time is over already
		}
		must.Do(t, err)
		if d.kill(); time.Now().Before(due) {
			break
		}
		d = startDaemon(t, opt, "")
		until(t, "what came due too early ends", func() bool {
			s, err = d.Schedule(t.Context(), c.ID, s.ID)
			must.Do(t, err)
			return s.Runs > 0 && s.RunningSince == nil
		})
		must.Do(t, ignoreGone(os.Remove(filepath.Join(c.Home, "count"))))
	}
	time.Sleep(time.Until(due))
	d = startDaemon(t, opt, "")
	until(t, "what came due runs", func() bool {
		s, err = d.Schedule(t.Context(), c.ID, s.ID)
		must.Do(t, err)
		return s.Runs > 0 && s.RunningSince == nil
	})
	if b, err := os.ReadFile(filepath.Join(c.Home, "count")); err != nil || string(b) != "x\n" || s.Runs != 1 || s.Last == nil || s.Last.Exit != 0 {
		t.Errorf("%q, %v, %+v", b, err, s)
	}
}
