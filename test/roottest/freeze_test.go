package roottest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func frozenIs(t *testing.T, m *manager, id chat.ID) chat.Frozen {
	t.Helper()
	return must.Get(m.Get(operator(t.Context()), id))(t).Frozen
}

const countLoop = "exec 5<><(:); while :; do echo >> count; read -t 0.2 -u 5; done &"

// counting lets the chat's shell count in the background, slower than a trickle and in no program
// of its own, and returns the file that grows.
func counting(t *testing.T, m *manager, opt provision.Options, c chat.Chat) string {
	t.Helper()
	file := filepath.Join(opt.Homes, string(c.ID), "count")
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: countLoop, Enter: true}))
	until(t, "it begins to count", func() bool { return goesOn(t, m, c) && sizeOf(t, file) > 0 })
	return file
}

// holds has an operator freeze a chat, which may sleep by then: a busy host takes its time.
func holds(t *testing.T, m *manager, id chat.ID) {
	t.Helper()
	until(t, "an operator freezes it", func() bool {
		err := expect.Err(m.Freeze(operator(t.Context()), id))
		if errors.Is(err, chat.ErrWrongPhase) {
			must.Get(m.Wake(operator(t.Context()), id))(t)
			return false
		}
		must.Do(t, err)
		return true
	})
}

func sizeOf(t *testing.T, file string) int64 {
	t.Helper()
	fi, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	must.Do(t, err)
	return fi.Size()
}

func counts(t *testing.T, file string) {
	t.Helper()
	was := sizeOf(t, file)
	until(t, "it counts", func() bool { return sizeOf(t, file) > was })
}

// standsStill looks ten times as long as a count takes.
func standsStill(t *testing.T, what, file string) {
	t.Helper()
	was := sizeOf(t, file)
	time.Sleep(2 * time.Second)
	now := sizeOf(t, file)
	expect.True(t, now == was, "%s: it counted %d times while it is frozen", what, now-was)
}

// TestFreezeAfter: a chat that nobody uses is frozen after freeze_after. It runs no code, whoever
// looks, and is awake. Its next input thaws it once and is typed once, and what it did goes on.
func TestFreezeAfter(t *testing.T) {
	opt := options(t)
	edit(opt, "default", func(p *chat.Profile) { p.FreezeAfter = chat.Duration(5 * time.Second) })
	m := open(t, opt)
	ctx := operator(t.Context())
	c, works := create(t, m, "idle", "default"), create(t, m, "works", "default")
	program(t, m, works)
	file := counting(t, m, opt, c)
	isFrozen := func() bool { return frozenIs(t, m, c.ID) == chat.FrozenUntilUsed }
	until(t, "it is frozen", isFrozen)
	expect.Equal(t, frozenIs(t, m, works.ID), "", "one at work is frozen")
	standsStill(t, "at first", file)
	looksAt := looks(m, c.ID)
	answers(t, "the frozen chat", looksAt, fine)
	expect.Says(t, expect.Err(m.Screen(ctx, c.ID)), chat.ErrWrongPhase, "frozen", "its screen")
	standsStill(t, "looked at", file)
	expect.True(t, isAwake(t, m, c) && frozenIs(t, m, c.ID) == chat.FrozenUntilUsed,
		"to look thawed it, or it is asleep")
	used := time.Now()
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "echo typed >> typed", Enter: true}))
	typed := filepath.Join(opt.Homes, string(c.ID), "typed")
	until(t, "the input is typed", func() bool { return sizeOf(t, typed) > 0 })
	counts(t, file)
	if is := frozenIs(t, m, c.ID); is != "" && time.Since(used) < opt.Profiles["default"].FreezeAfter.D() {
		t.Errorf("used, it is frozen %s", is)
	}
	audit := auditText(t, opt)
	for _, want := range []string{
		`"action":"freeze","outcome":"done"`, "freeze_after of its profile is 5s",
		`"action":"thaw","outcome":"done"`,
	} {
		expect.True(t, strings.Contains(audit, want), "the audit log lacks %s", want)
	}
	n := sizeOf(t, typed)
	expect.True(t, n == int64(len("typed\n")), "%d bytes were typed", n)
	until(t, "it is frozen again", isFrozen)
	must.Get(m.Sleep(ctx, c.ID))(t)
	expect.True(t, !isAwake(t, m, c), "it does not sleep")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "echo typed >> typed", Enter: true}))
	until(t, "it is frozen after a wake", isFrozen)
}

// TestEachUseThaws: whatever uses a frozen chat finds it thawed; nothing hangs. A run of its
// shell's goes on.
func TestEachUseThaws(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := create(t, m, "used", "default")
	file := counting(t, m, opt, c)
	uses := calls(m, c.ID)
	for _, none := range []string{"screen", "write", "list"} { // file tools meet no process of the chat's
		delete(uses, none)
	}
	uses["wake"] = func(ctx context.Context) error { return expect.Err(m.Wake(ctx, c.ID)) }
	uses["thaw"] = func(ctx context.Context) error {
		return expect.Err(m.Thaw(asBridge(ctx, "root"), c.ID))
	}
	uses["attach"] = func(ctx context.Context) error {
		ctx, detach := context.WithCancel(ctx)
		spec := chat.Attach{TTY: chat.TTY{Rows: 24, Cols: 80}, ReadOnly: true}
		_, err := m.Attach(ctx, c.ID, spec, func(string, []byte) { detach() })
		detach()
		return err
	}
	uses["a schedule"] = func(ctx context.Context) error {
		spec := chat.ScheduleSpec{Cron: "0 0 1 1 *", Argv: []string{"true"}}
		next := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		s, err := m.PutSchedule(ctx, c.ID, chat.NewSchedule{Spec: spec, Next: next})
		if err != nil {
			return err
		}
		d := chat.DueSchedule{Chat: c.ID, ID: s.ID, At: next, Now: next.Add(time.Minute)}
		return expect.Err(m.BeginDue(ctx, d))
	}
	for what, use := range uses {
		var err error
		until(t, "the owner freezes it", func() bool { // what came before may be under way
			_, err = m.Freeze(asBridge(t.Context(), "root"), c.ID)
			return !errors.Is(err, chat.ErrBusy)
		})
		must.Do(t, err)
		answers(t, "the frozen chat", map[string]func(context.Context) error{what: use}, fine)
		expect.Equal(t, frozenIs(t, m, c.ID), "", "after %s it is frozen", what)
		counts(t, file)
	}
	must.Get(m.Sleep(ctx, c.ID))(t)
	for what, err := range map[string]error{
		"freeze": expect.Err(m.Freeze(ctx, c.ID)), "thaw": expect.Err(m.Thaw(ctx, c.ID)),
	} {
		expect.Is(t, err, chat.ErrWrongPhase, "%s of a sleeping chat", what)
	}
}

// TestFrozenByOperator: an operator stops a chat that takes all its CPU time, whatever it does, and
// loses nothing of it. Nobody uses it, it does not sleep by itself, and its owner cannot thaw it.
func TestFrozenByOperator(t *testing.T) {
	opt := options(t)
	edit(opt, "default", func(p *chat.Profile) { p.SleepAfter = chat.Duration(5 * time.Second) })
	m := open(t, opt)
	ctx, own := operator(t.Context()), asBridge(t.Context(), "root")
	c, beside := create(t, m, "eats", "default"), create(t, m, "beside it", "web")
	quiet := create(t, m, "quiet", "default")
	holds(t, m, quiet.ID)
	file := filepath.Join(opt.Homes, string(c.ID), "count")
	const eats = "trap '' TERM INT; while :; do echo >> count; (:); /bin/true; done"
	spec := chat.RunSpec{Command: eats, Timeout: chat.Duration(10 * time.Minute)}
	run := startRun(t, m, c.ID, spec)
	counts(t, file)
	expect.Is(t, expect.Err(m.Freeze(own, c.ID)), chat.ErrBusy, "its owner freezes it at work")
	counts(t, file)
	got, err := m.Freeze(ctx, c.ID)
	must.True(t, err == nil && got.Frozen == chat.FrozenUntilThawed, "%v, frozen is %q", err, got.Frozen)
	must.Get(m.Freeze(ctx, c.ID))(t)
	standsStill(t, "held", file)
	refused := calls(m, c.ID)
	refused["wake"] = func(ctx context.Context) error { return expect.Err(m.Wake(ctx, c.ID)) }
	answers(t, "the held chat", refused, busyFrozen)
	answers(t, "the held chat", looks(m, c.ID), fine)
	answers(t, "the chat beside it", calls(m, beside.ID), fine)
	expect.Is(t, expect.Err(m.Thaw(own, c.ID)), chat.ErrDenied, "its owner thaws it")
	must.Get(m.Patch(ctx, c.ID, chat.Patch{Labels: map[string]*string{"k": nil}}))(t)
	standsStill(t, "after all that", file) // and longer than sleep_after
	for _, c := range []chat.Chat{c, quiet} {
		expect.True(t, isAwake(t, m, c) && frozenIs(t, m, c.ID) == chat.FrozenUntilThawed,
			"%s sleeps, or was thawed", c.ExternalID)
	}
	now := time.Now()
	if got, err := m.Thaw(ctx, quiet.ID); err != nil || got.UsedAt.Before(now) {
		t.Errorf("thawed, it counts as idle since %s, and may sleep: %v", got.UsedAt, err)
	}
	must.Get(m.Thaw(ctx, c.ID))(t)
	counts(t, file)
	expect.Equal(t, frozenIs(t, m, c.ID), "", "thawed, it is frozen")
	expect.Equal(t, must.Get(m.ShowRun(ctx, c.ID, run.ID))(t).State, chat.RunRunning, "its run")
	must.Get(m.Freeze(ctx, c.ID))(t)
	must.Do(t, m.EndRun(own, c.ID, run.ID)) // ends what stands still
	was := sizeOf(t, file)
	must.Get(m.Sleep(own, c.ID))(t)
	expect.True(t, sizeOf(t, file) == was, "it ran before it slept")
	answers(t, "the chat that slept", calls(m, beside.ID), fine)
	must.Do(t, m.Input(own, c.ID, chat.Input{Text: "echo woken > woken", Enter: true}))
	woken := filepath.Join(opt.Homes, string(c.ID), "woken")
	until(t, "the input after the sleep is typed", exists(woken))
	holds(t, m, c.ID)
}

// TestFrozenSurvivesKill: a chatd that comes after a kill -9 knows what is frozen, and until when,
// from the kernel alone. The next input thaws the one, an operator the other.
func TestFrozenSurvivesKill(t *testing.T) {
	opt := options(t)
	config := configFile(t, opt, "profiles: {default: {freeze_after: 5s}}\n")
	d := startDaemonOf(t, opt, config, "")
	made := func(external string) (chat.Chat, string) {
		c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: external}))(t)
		must.Do(t, d.Input(t.Context(), c.ID, chat.Input{Text: countLoop, Enter: true}))
		file := filepath.Join(opt.Homes, string(c.ID), "count")
		counts(t, file)
		return c, file
	}
	is := func(c chat.Chat, want chat.Frozen) bool {
		got := must.Get(d.Get(t.Context(), c.ID))(t)
		return got.Frozen == want && got.Awake
	}
	idle, idleFile := made("idle")
	held, heldFile := made("held")
	must.Get(d.Freeze(t.Context(), held.ID))(t)
	until(t, "the idle one is frozen", func() bool { return is(idle, chat.FrozenUntilUsed) })
	for range 2 {
		d.kill()
		standsStill(t, "without chatd", idleFile)
		d = startDaemonOf(t, opt, config, "")
		must.True(t, is(idle, chat.FrozenUntilUsed) && is(held, chat.FrozenUntilThawed),
			"the next chatd does not know what is frozen")
	}
	standsStill(t, "held", heldFile)
	must.Do(t, d.Input(t.Context(), idle.ID, chat.Input{Text: "echo typed > typed", Enter: true}))
	until(t, "the input is typed", exists(filepath.Join(opt.Homes, string(idle.ID), "typed")))
	counts(t, idleFile)
	expect.Is(t, d.Input(t.Context(), held.ID, chat.Input{Text: "x", Enter: true}), chat.ErrBusy, "an input to the held chat")
	must.Get(d.Thaw(t.Context(), held.ID))(t)
	counts(t, heldFile)
}

// TestAttackFreeze: a chat finds no file by which it could freeze or thaw anything. The control:
// the same look finds them on the host.
func TestAttackFreeze(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "thaws itself", "default")
	const look = "find / -xdev -name cgroup.freeze 2>/dev/null; " +
		"find /sys /proc/self/root/sys -name 'cgroup.*' 2>/dev/null; " +
		"grep -cE '^[^ ]+ [^ ]+ cgroup' /proc/mounts"
	spec := chat.RunSpec{Command: look, Timeout: chat.Duration(time.Minute)}
	r, err := m.Run(operator(t.Context()), c.ID, spec)
	expect.True(t, err == nil && r.Stdout == "0\n", "%q, %v", r.Stdout, err)
	expect.NoError(t, expect.Err(os.Stat(filepath.Join(groupOf(t, c.ID), "cgroup.freeze"))))
}

// TestFrozenHoldsUpNobody: a chat that is frozen while a pipe to chatd is full
// and a file tool is under way does not delay others, and its own calls end in time.
func TestFrozenHoldsUpNobody(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c, beside := create(t, m, "holds", "default"), create(t, m, "beside it", "default")
	_, ended := begin(t, m, c.ID, "yes", 3*time.Second) // its output comes without end, and stops
	var wrote sync.WaitGroup
	wrote.Go(func() { // a file tool that waits for its caller's text, which does not come
		r, w := io.Pipe()
		stop := time.AfterFunc(5*time.Second, func() { _ = w.Close() })
		defer stop.Stop()
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, _ = m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: "slow"}, r)
	})
	must.Get(m.Freeze(ctx, c.ID))(t)
	answers(t, "the chat beside it", calls(m, beside.ID), fine)
	answers(t, "the frozen chat", looks(m, c.ID), fine)
	create(t, m, "another", "default")
	must.Do(t, within(t, "the run of the frozen chat", func() error { <-ended; return nil }))
	wrote.Wait()
	must.Get(m.Thaw(ctx, c.ID))(t)
	answers(t, "the thawed chat", calls(m, c.ID), fine)
}

// TestFrozenMeetsRules: a chat that stands still in the middle of opens that the enforcer answers
// holds up no open of another chat, and is answered when it goes on.
func TestFrozenMeetsRules(t *testing.T) {
	opt := ruledOptions(t, "access: {useDefaults: false, deny: [\"**/.env\"]}\n")
	m := open(t, opt)
	ctx := operator(t.Context())
	c, beside := create(t, m, "opens", "default"), create(t, m, "beside it", "default")
	const opens = "for i in 1 2 3 4; do (while :; do echo >> seen; cat .env new/.env other; " +
		"mkdir -p new; echo x > new/.env; rm -r new; done) & done; wait"
	startRun(t, m, c.ID, chat.RunSpec{Command: opens, Timeout: chat.Duration(10 * time.Minute)})
	looked := map[string]func(context.Context) error{"an open": func(ctx context.Context) error {
		spec := chat.RunSpec{Command: "echo x > other && cat other && ! cat .env"}
		r, err := m.Run(ctx, beside.ID, spec)
		if err == nil && r.Exit != 0 {
			err = fmt.Errorf("%+v", r)
		}
		return err
	}}
	for range 5 {
		must.Get(m.Freeze(ctx, c.ID))(t)
		answers(t, "the chat beside it", looked, fine)
		must.Get(m.Thaw(ctx, c.ID))(t)
		answers(t, "the chat beside it", looked, fine)
	}
	counts(t, filepath.Join(opt.Homes, string(c.ID), "seen"))
}

// TestFrozenTraffic: what is sent to a frozen chat without end fills the buffers on the way, and no
// more; another chat's connections are carried meanwhile. After the thaw the connection goes on.
func TestFrozenTraffic(t *testing.T) {
	out := newInternet(t)
	var sent atomic.Int64
	var connections atomic.Int32
	for _, l := range out.listen(t, "7001") {
		go each(l, func(c net.Conn) {
			connections.Add(1)
			for piece := make([]byte, 64<<10); ; {
				n, err := c.Write(piece)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
	}
	m := open(t, named(t, "api.example.test:7000", "api.example.test:7001"))
	ctx := operator(t.Context())
	a, beside := inmateOf(t, m, "downloads", "named"), inmateOf(t, m, "beside it", "named")
	const download = "exec 7<>/dev/tcp/api.example.test/7001; cat <&7 >/dev/null"
	startRun(t, m, a.ID, chat.RunSpec{
		Argv: []string{"bash", "-c", download}, Timeout: chat.Duration(10 * time.Minute),
	})
	more := func(than int64) func() bool { return func() bool { return sent.Load() > than } }
	until(t, "it downloads", more(32<<20))
	must.Get(m.Freeze(ctx, a.ID))(t)
	before := sent.Load()
	until(t, "the buffers are full", func() bool {
		was := sent.Load()
		said := beside.try(t, "say", "api.example.test:7000", "x")
		outcomes(t, "beside a frozen chat", said, "ok")
		time.Sleep(time.Second)
		return sent.Load() == was
	})
	// The server's socket, both of chatd-egress and the chat's have buffers, and splice(2) a pipe.
	most := 2*(buffer(t, "tcp_rmem")+buffer(t, "tcp_wmem")) + 1<<20
	n := sent.Load() - before
	expect.True(t, n <= most, "%d bytes were taken for a chat that stands still, want %d at most", n, most)
	before = sent.Load()
	must.Get(m.Thaw(ctx, a.ID))(t)
	until(t, "the download goes on", more(before+32<<20))
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want the first alone", n)
	}
}

// buffer is how large a buffer of TCP grows (tcp(7)), in bytes.
func buffer(t *testing.T, name string) int64 {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/sys/net/ipv4/" + name))(t)
	var least, first, most int64
	must.Get(fmt.Sscan(string(b), &least, &first, &most))(t)
	return most
}

// groupOf is the chat's directory in the cgroup2 tree.
func groupOf(t *testing.T, id chat.ID) string {
	t.Helper()
	for _, dir := range cgroups(string(id)) {
		if strings.Contains(filepath.Base(dir), string(id)) && exists(dir+"/cgroup.freeze")() {
			return dir
		}
	}
	t.Fatalf("chat %s has no cgroup", id)
	return ""
}

// freeze stops every process of a chat by cgroup.freeze, until its end or thaw.
func freeze(t *testing.T, id chat.ID) {
	t.Helper()
	dir := groupOf(t, id)
	must.Do(t, os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0o644))
	until(t, "the chat is frozen", func() bool {
		return strings.Contains(text(filepath.Join(dir, "cgroup.events")), "frozen 1")
	})
}

// calls are what a bridge does with a chat.
func calls(m *manager, id chat.ID) map[string]func(context.Context) error {
	text := "text"
	return map[string]func(context.Context) error{
		"run": func(ctx context.Context) error {
			return expect.Err(m.Run(ctx, id, chat.RunSpec{Command: "true", Timeout: chat.Duration(5 * time.Second)}))
		},
		"background": func(ctx context.Context) error { return expect.Err(m.StartRun(ctx, id, chat.RunSpec{Command: "true"})) },
		"write": func(ctx context.Context) error {
			return expect.Err(m.WriteFile(ctx, id, filewire.WriteFile{Path: "f", Content: &text}, nil))
		},
		"list": func(ctx context.Context) error {
			return expect.Err(m.ListDir(ctx, id, filewire.ListDir{}, func(filewire.Answer) io.Writer { return &bytes.Buffer{} }))
		},
		"screen": func(ctx context.Context) error { return expect.Err(m.Screen(ctx, id)) },
		"input":  func(ctx context.Context) error { return m.Input(ctx, id, chat.Input{Enter: true}) },
	}
}

// looks are what must answer whatever a chat does.
func looks(m *manager, id chat.ID) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"get":  func(ctx context.Context) error { return expect.Err(m.Get(ctx, id)) },
		"ls":   func(ctx context.Context) error { return expect.Err(m.List(ctx, chat.Filter{})) },
		"runs": func(ctx context.Context) error { return expect.Err(m.Runs(ctx, id)) },
		"ps":   func(ctx context.Context) error { return expect.Err(m.Processes(ctx, id)) },
		"log":  func(ctx context.Context) error { return expect.Err(m.Log(ctx, id, -1)) },
		"the minute's look": func(ctx context.Context) error {
			m.Reconcile(ctx)
			return nil
		},
	}
}

// answers makes each call, and fails where one does not come back at all.
func answers(t *testing.T, of string, all map[string]func(context.Context) error, check func(error) bool) {
	t.Helper()
	for name, call := range all {
		err := within(t, name+" of "+of, func() error { return call(operator(t.Context())) })
		expect.True(t, check(err), "%s of %s: %v", name, of, err)
	}
}

func fine(err error) bool { return err == nil }

func busyFrozen(err error) bool {
	return errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "frozen")
}

// begin lets a chat run a command for that long, and returns the run's name when it has begun, and
// what it ends with: its time must be over then.
func begin(t *testing.T, m *manager, id chat.ID, command string, limit time.Duration) (run string, ended <-chan chat.RunResult) {
	t.Helper()
	begun := make(chan string, 1)
	ended = going(func() chat.RunResult {
		r, err := m.Run(operator(t.Context()), id, chat.RunSpec{
			Command: command, Timeout: chat.Duration(limit), Started: func(run string) { begun <- run },
		})
		expect.True(t, err == nil && r.EndedBy == chat.EndedByTimeout, "the run of a chat that stands still: %+v, %v", r, err)
		return r
	})
	return <-begun, ended
}

// TestFrozenChat: a chat whose processes are all frozen does not delay others. Its own calls end
// with an error that says so; it can be put to sleep and reaped.
func TestFrozenChat(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	a, b := create(t, m, "frozen", "default"), create(t, m, "beside it", "default")
	_, ended := begin(t, m, a.ID, "sleep 600", 3*time.Second)
	freeze(t, a.ID)
	answers(t, "the frozen chat", calls(m, a.ID), busyFrozen)
	answers(t, "the frozen chat", looks(m, a.ID), fine)
	answers(t, "the chat beside it", calls(m, b.ID), fine)
	<-ended
	must.Get(m.Sleep(ctx, a.ID))(t)
	answers(t, "the chat that slept", calls(m, a.ID), func(err error) bool {
		return err == nil || errors.Is(err, chat.ErrWrongPhase) // its screen, if that was first
	})
	freeze(t, a.ID)
}

// TestUnkillableChat: processes of a run do not end when they are killed, as those of a chat that
// owes the kernel time. The caller has its answer, with what was printed, and others have theirs.
// A freezer of cgroup v1 makes such processes.
func TestUnkillableChat(t *testing.T) {
	const freezer = "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(freezer); err != nil {
		t.Log("NOT TRIED: no cgroup v1 freezer here, and nothing else stops a process from being killed")
		return
	}
	m := open(t, options(t))
	ctx := operator(t.Context())
	a, b := create(t, m, "unkillable", "default"), create(t, m, "beside it", "default")
	name, ended := begin(t, m, a.ID, "echo begun; sleep 600", 10*time.Second)
	leaf := filepath.Join(groupOf(t, a.ID), "runs", name)
	var inside []string
	until(t, "its command is there", func() bool {
		inside = strings.Fields(text(filepath.Join(leaf, "cgroup.procs")))
		return len(inside) >= 3 // nsenter, sh and sleep
	})
	cold := must.Get(os.MkdirTemp(freezer, "chatd-test-"))(t)
	thaw := func() {
		must.Do(t, os.WriteFile(filepath.Join(cold, "freezer.state"), []byte("THAWED"), 0o644))
		until(t, "the freezer is empty", func() bool { return errors.Is(unix.Rmdir(cold), unix.ENOENT) || !exists(cold)() })
	}
	defer func() {
		if exists(cold)() {
			thaw()
		}
	}()
	for _, pid := range inside {
		must.Do(t, os.WriteFile(filepath.Join(cold, "cgroup.procs"), []byte(pid), 0o644))
	}
	must.Do(t, os.WriteFile(filepath.Join(cold, "freezer.state"), []byte("FROZEN"), 0o644))
	var r chat.RunResult
	must.Do(t, within(t, "a run that cannot be killed", func() error { r = <-ended; return nil }))
	expect.Equal(t, r.Stdout, "begun\n", "a run that cannot be killed printed")
	answers(t, "the chat", calls(m, a.ID), fine)
	slept := going(func() error { return expect.Err(m.Sleep(ctx, a.ID)) })
	answers(t, "the chat beside it", calls(m, b.ID), fine)
	answers(t, "a chat that cannot sleep", looks(m, a.ID), fine)
	thaw()
	if err := <-slept; err != nil && !errors.Is(err, chat.ErrBusy) {
		t.Error(err)
	}
	until(t, "its leaf is gone", func() bool { return !exists(leaf)() })
}
