package roottest

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// soakRuns is how many runs TestSoak makes: 400, or 40 with -short. CHATD_TEST_SOAK is
// another number.
func soakRuns(t *testing.T) int {
	t.Helper()
	s := os.Getenv("CHATD_TEST_SOAK")
	switch {
	case s == "" && testing.Short():
		return 40
	case s == "":
		return 400
	}
	return must.Get(strconv.Atoi(s))(t)
}

// soakCommands stay, each in its way, or end at once.
var soakCommands = []string{
	"true", "exit 3", "echo out; echo err >&2", "yes | head -c 200000",
	"sleep 1000", "trap '' TERM HUP; while :; do sleep 1; done", "setsid sleep 1000 & sleep 1000", "setsid sleep 1000 >/dev/null 2>&1 &",
	"(setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &) ; exit 0", "kill -STOP $$", "kill -9 $$", "cat",
}

// soakOne makes one run and ends it in some way.
func soakOne(m *manager, id chat.ID) error {
	ctx, leave := context.WithCancel(operator(context.Background()))
	defer leave()
	spec := chat.RunSpec{Command: soakCommands[rand.IntN(len(soakCommands))], Timeout: chat.Duration(time.Minute), Grace: chat.Duration(30 * time.Millisecond), OpenStdin: rand.IntN(3) == 0}
	soon := time.Duration(rand.IntN(60)) * time.Millisecond
	switch rand.IntN(5) {
	case 0: // its timeout
		spec.Timeout = chat.Duration(soon + time.Millisecond)
	case 1: // its caller goes
		time.AfterFunc(soon, leave)
	case 2: // a caller ends it
		spec.Started = func(run string) {
			time.AfterFunc(soon, func() { _ = m.EndRun(operator(context.Background()), id, run) })
		}
	case 3: // a signal that it cannot ignore, to all of it
		spec.Started = func(run string) {
			time.AfterFunc(soon, func() { _ = m.SignalRun(operator(context.Background()), id, run, chat.RunSignal{Signal: "KILL"}) })
		}
		spec.Timeout = chat.Duration(500 * time.Millisecond)
	case 4:
		return soakBackground(ctx, m, id, spec, soon)
	}
	if rand.IntN(8) == 0 && !spec.OpenStdin {
		spec.TTY = &chat.TTY{Rows: 24, Cols: 80}
	}
	_, err := m.RunTo(ctx, id, spec, func(string, []byte) {})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%+v: %w", spec, err)
	}
	return nil
}

func soakBackground(ctx context.Context, m *manager, id chat.ID, spec chat.RunSpec, soon time.Duration) error {
	r, err := m.StartRun(ctx, id, spec)
	if err != nil {
		return fmt.Errorf("%+v: %w", spec, err)
	}
	if spec.OpenStdin {
		_ = m.WriteStdin(ctx, id, r.ID, io.NopCloser(strings.NewReader("x")), rand.IntN(2) == 0)
	}
	time.Sleep(soon)
	return m.EndRun(ctx, id, r.ID)
}

// soakLeft is what a daemon and its chats have.
type soakLeft struct {
	Goroutines, Descriptors, Processes, Leaves, Supervisors int
}

func soakCount(t *testing.T, opt provision.Options, chats []chat.Chat) soakLeft {
	t.Helper()
	fds := must.Get(os.ReadDir("/proc/self/fd"))(t)
	l := soakLeft{Goroutines: runtime.NumGoroutine(), Descriptors: len(fds), Leaves: len(runLeaves(opt)), Supervisors: len(supervisors(t))}
	for _, c := range chats {
		l.Processes += len(inRuns(c.UID))
	}
	return l
}

// TestSoak: runs that end in every way, many at once, leave no process, leaf, descriptor, goroutine
// or file.
func TestSoak(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	var chats []chat.Chat
	for i := range 8 {
		chats = append(chats, create(t, m, fmt.Sprint("soak", i), "default"))
	}
	for _, c := range chats { // what is made once is made
		must.Do(t, soakBackground(operator(t.Context()), m, c.ID, chat.RunSpec{Command: "true"}, 0))
		run(t, m, c.ID, "true")
	}
	var before, after soakLeft
	until(t, "the first runs are gone", func() bool {
		before = soakCount(t, opt, chats)
		return before.Processes+before.Leaves+before.Supervisors == 0
	})
	n, began := soakRuns(t), time.Now()
	next := make(chan chat.ID)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for id := range next {
				expect.NoError(t, soakOne(m, id))
			}
		})
	}
	for i := range n {
		next <- chats[i%len(chats)].ID
	}
	close(next)
	wg.Wait()
	took := time.Since(began)
	if !comes(func() bool { // timers of the test itself, and the dead that are not collected yet
		after = soakCount(t, opt, chats)
		return after.Goroutines <= before.Goroutines && after.Descriptors <= before.Descriptors && after.Processes+after.Leaves+after.Supervisors == 0
	}) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	for _, c := range chats {
		kept, err := os.ReadDir(filepath.Join(opt.Run, "runs", string(c.ID)))
		expect.True(t, err == nil && len(kept) <= chat.MaxRuns,
			"%d runs of %s are kept, %v", len(kept), c.ID, err)
	}
	t.Logf("%d runs in %s: before %+v, after %+v", n, took.Round(time.Millisecond), before, after)
}

// TestAnswerWithinGrace: a background run that is ended is gone, and the answer is there,
// whatever it does to stay; as is a run whose stdout the chat's terminal holds open.
func TestAnswerWithinGrace(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "answer", "default")
	ctx := operator(t.Context())
	for _, command := range stubborn {
		r := startRun(t, m, c.ID, chat.RunSpec{Command: command, Timeout: chat.MaxTimeout, Grace: chat.Duration(300 * time.Millisecond), Env: map[string]string{runTag: "answer"}})
		until(t, "control: what the run started is seen", func() bool { return len(tagged(c.UID, "answer")) > 0 && len(inRuns(c.UID)) > 0 })
		must.Do(t, m.EndRun(ctx, c.ID, r.ID))
		nothingTagged(t, c, "answer")
	}
	for _, background := range []bool{false, true} {
		must.Do(t, os.RemoveAll(filepath.Join(c.Home, "held")))
		must.Do(t, os.RemoveAll(filepath.Join(c.Home, "pid")))
		must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "while [ ! -s ~/pid ]; do sleep 0.05; done; exec 9>/proc/$(cat ~/pid)/fd/1; echo held >~/held", Enter: true}))
		spec := chat.RunSpec{Command: "echo $$ >~/pid; while [ ! -s ~/held ]; do sleep 0.05; done; echo done; exit 8", Timeout: chat.MaxTimeout}
		if background {
			r := awaitRun(t, m, c.ID, startRun(t, m, c.ID, spec).ID)
			expect.True(t, r.Result.Exit == 8 && r.Result.Stdout == "done\n",
				"in the background: %+v", r.Result)
			continue
		}
		r, err := m.Run(ctx, c.ID, spec)
		expect.True(t, err == nil && r.Exit == 8 && r.Stdout == "done\n", "%+v, %v", r, err)
	}
}

// soakSize is how long TestSoakLife lasts, and with how many chats: 20 minutes and 500 by make
// soak.
func soakSize(t *testing.T) (last time.Duration, chats int) {
	t.Helper()
	s := os.Getenv("CHATD_TEST_SOAK_FOR")
	switch {
	case s == "" && testing.Short():
		return 3 * time.Second, 10
	case s == "":
		return 30 * time.Second, 60
	}
	last = must.Get(time.ParseDuration(s))(t)
	return last, 500
}

// TestSoakLife: chats of 20 owners go through all verbs, some at once. When all are reaped, the
// host has nothing more than before the first, and chatd's processes have no descriptor, goroutine
// or memory more. It prints the latencies of each verb, and draws them where CHATD_TEST_SOAK_PLOT
// names a file.
func TestSoakLife(t *testing.T) {
	last, chats := soakSize(t)
	opt := options(t)
	s := &lifeSoak{t: t, opt: opt, began: time.Now()}
	s.daemon = startDaemon(t, opt, "", modelProfiles)
	s.soak(min(chats, 20), 0) // what is made once is made
	before := s.count()
	s.began, s.took, s.used = time.Now(), nil, nil
	s.soak(chats, last)
	var after lifeCount
	expect.True(t, comes(func() bool { after = s.count(); return after.nothingMore(before) }),
		"before %+v\nafter  %+v", before, after)
	s.report(last)
	// Some are timers, and the runtime's own.
	if g, fresh := s.goroutines(s.daemon), s.freshGoroutines(); g > fresh+16 {
		t.Errorf("chatd-root has %d goroutines, a fresh one %d", g, fresh)
	}
	t.Logf("before %+v\nafter  %+v", before, after)
}

// lifeSoak drives one daemon. took are the calls so far.
type lifeSoak struct {
	*daemon
	t     *testing.T
	opt   provision.Options
	began time.Time
	mu    sync.Mutex
	took  []tookCall
	used  []memorySample
}

type tookCall struct {
	verb     string
	at, took time.Duration
}

type memorySample struct {
	at  time.Duration
	pss uint64
}

// soaked is one conversation: one caller at a time uses it.
type soaked struct {
	sync.Mutex
	spec chat.Spec
	chat chat.Chat
}

// soak makes chats, lets 16 callers use any of them until the time is over, and reaps them. Each is
// put through all verbs once at least.
func (s *lifeSoak) soak(chats int, last time.Duration) {
	all := make([]*soaked, chats)
	for i := range all {
		all[i] = &soaked{spec: chat.Spec{
			ExternalID: fmt.Sprint("soak ", i), Owner: fmt.Sprint("owner", i%20),
			Profile: modelNames[i%len(modelNames)],
		}}
	}
	atOnce(all, func(c *soaked) {
		s.create(c)
		for _, i := range rand.Perm(len(soakVerbs)) {
			s.verb(c, i)
		}
	})
	end := time.Now().Add(last)
	callers := make([]int, 16)
	atOnce(callers, func(int) {
		for time.Now().Before(end) {
			s.useOne(all[rand.IntN(len(all))])
		}
	})
	atOnce(all, s.reap)
	s.quiet()
}

// atOnce does for each of all, 16 simultaneously.
func atOnce[T any](all []T, do func(T)) {
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(16, len(all)) {
		wg.Go(func() {
			for one := range next {
				do(one)
			}
		})
	}
	for _, one := range all {
		next <- one
	}
	close(next)
	wg.Wait()
}

// useOne makes one call for a chat; one of 50 ends its life, and begins the next.
func (s *lifeSoak) useOne(c *soaked) {
	c.Lock()
	defer c.Unlock()
	if rand.IntN(50) == 0 {
		s.reap(c)
		s.create(c)
		return
	}
	s.verb(c, rand.IntN(len(soakVerbs)))
}

func (s *lifeSoak) create(c *soaked) {
	s.call("create", c, func(ctx context.Context, _ chat.ID) (err error) {
		c.chat, _, err = s.Create(ctx, c.spec)
		return err
	})
}

func (s *lifeSoak) verb(c *soaked, i int) {
	s.call(soakVerbs[i].name, c, func(ctx context.Context, id chat.ID) error {
		return soakVerbs[i].do(s, ctx, id)
	})
}

func (s *lifeSoak) reap(c *soaked) {
	s.call("reap", c, func(ctx context.Context, id chat.ID) error { return s.Reap(ctx, id) })
}

// call times one call; an error is a failure.
func (s *lifeSoak) call(verb string, c *soaked, do func(context.Context, chat.ID) error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), longEnough)
	defer cancel()
	began := time.Now()
	if err := do(ctx, c.chat.ID); err != nil {
		s.t.Errorf("%s of %s: %v", verb, c.spec.ExternalID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, tookCall{verb, began.Sub(s.began), time.Since(began)})
	if len(s.took)%64 == 0 {
		s.used = append(s.used, memorySample{began.Sub(s.began), s.memory()})
	}
}

// soakVerbs are what is done to a chat between create and reap, in any order.
var soakVerbs = []struct {
	name string
	do   func(*lifeSoak, context.Context, chat.ID) error
}{
	{"wake", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		return expect.Err(s.Wake(ctx, id))
	}},
	{"sleep", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		return expect.Err(s.Sleep(ctx, id))
	}},
	{"get", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		return expect.Err(s.Get(ctx, id))
	}},
	{"list", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		return expect.Err(s.List(ctx, chat.Filter{Limit: 50}))
	}},
	{"run", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		r, err := s.Run(ctx, id, chat.RunSpec{Command: "echo here; head -c 50000 /dev/zero > z"})
		if err == nil && r.Stdout != "here\n" {
			err = fmt.Errorf("it says %q, and ends with %d", r.Stdout, r.Exit)
		}
		return err
	}},
	{"background", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		r, err := s.StartRun(ctx, id, chat.RunSpec{Command: "sleep 1000 & sleep 1000"})
		if err != nil {
			return err
		}
		return s.EndRun(ctx, id, r.ID)
	}},
	{"input", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		line := chat.Input{Text: "echo", Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt}}
		return expect.Err(s.InputWait(ctx, id, line))
	}},
	{"exit", func(s *lifeSoak, ctx context.Context, id chat.ID) error { // its shell ends, and the session
		err := s.Input(ctx, id, chat.Input{Text: "exit", Enter: true})
		for err == nil {
			var c chat.Chat
			if c, err = s.Get(ctx, id); err == nil && !c.Awake {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		return err
	}},
	{"write", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		file := filewire.WriteFile{Path: "written", Stream: true}
		return expect.Err(s.WriteFile(ctx, id, file, strings.NewReader("text")))
	}},
	{"patch", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		value := fmt.Sprint(rand.IntN(9))
		return expect.Err(s.Patch(ctx, id, chat.Patch{Labels: map[string]*string{"soak": &value}}))
	}},
	{"schedule", func(s *lifeSoak, ctx context.Context, id chat.ID) error {
		added, err := s.AddSchedule(ctx, id, chat.ScheduleSpec{Cron: "0 0 1 1 *", Command: "true"})
		if err != nil {
			return err
		}
		return s.RemoveSchedule(ctx, id, added.ID)
	}},
}

// lifeCount is what chatd's processes and the host have.
type lifeCount struct {
	Descriptors, Processes, Cgroups, Rules, Mounts, Accounts, Files, Namespaces int
	PSS, Unreclaimable                                                          uint64 // KiB
}

// nothingMore compares counts without chats. The heap of a Go program grows by what was in use at
// once, and goes back slowly.
func (l lifeCount) nothingMore(before lifeCount) bool {
	grown := l.PSS > before.PSS*5/4+24<<10
	return !grown && l.Descriptors <= before.Descriptors && l.Processes <= before.Processes &&
		l.Cgroups <= before.Cgroups && l.Rules <= before.Rules && l.Mounts <= before.Mounts &&
		l.Accounts <= before.Accounts && l.Files <= before.Files &&
		l.Namespaces <= before.Namespaces
}

// pids are chatd's own processes.
func (s *lifeSoak) pids() []string {
	root := s.cmd.Process.Pid
	main := []string{fmt.Sprint(root), fmt.Sprint(frontOf(s.t, root))}
	return slices.Concat(main, egressesOf(s.opt), enforcersOf(s.opt))
}

// quiet waits until no process of a chat is left.
func (s *lifeSoak) quiet() {
	until(s.t, "no chat has a process", func() bool {
		h := independent{opt: s.opt, processes: map[uint32][]int{}}
		h.readProcesses(s.t)
		return len(h.processes) == 0
	})
}

func (s *lifeSoak) count() (l lifeCount) {
	h := independent{opt: s.opt, processes: map[uint32][]int{}, cgroups: map[chat.ID][]string{}}
	h.readProcesses(s.t)
	h.readCgroups(s.t)
	l.Processes, l.Cgroups = len(h.processes), len(h.cgroups)
	for _, pid := range s.pids() {
		fds, err := os.ReadDir("/proc/" + pid + "/fd")
		must.Do(s.t, ignoreGone(err))
		l.Descriptors += len(fds)
	}
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		out := must.Get(exec.Command(save).Output())(s.t)
		l.Rules += strings.Count(string(out), "\n-A ")
	}
	mounts := must.Get(os.ReadFile("/proc/self/mountinfo"))(s.t)
	l.Mounts = strings.Count(string(mounts), "\n")
	accounts := must.Get(os.ReadDir(s.opt.Userdb))(s.t)
	l.Accounts = len(accounts)
	for _, dir := range []string{s.opt.Homes, s.opt.Run, s.opt.State} {
		must.Do(s.t, filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error {
			l.Files++
			return ignoreGone(err)
		}))
	}
	spaces, _ := filepath.Glob("/run/netns/*")
	l.Namespaces, l.PSS = len(spaces), s.memory()
	l.Unreclaimable = kilobytes("/proc/meminfo", "SUnreclaim")
	return l
}

// memory is what chatd's processes use together, in KiB.
func (s *lifeSoak) memory() (pss uint64) {
	for _, pid := range s.pids() {
		pss += kilobytes("/proc/"+pid+"/smaps_rollup", "Pss")
	}
	return pss
}

// kilobytes is a line of a file such as proc_meminfo(5), 0 where there is none.
func kilobytes(file, key string) (n uint64) {
	for line := range strings.Lines(text(file)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}

var goroutineLine = regexp.MustCompile(`(?m)^goroutine \d+ `)

// goroutines ends a daemon by SIGQUIT, at which a Go program prints its goroutines.
func (s *lifeSoak) goroutines(d *daemon) int {
	said := must.Get(os.ReadFile(d.log))(s.t)
	must.Do(s.t, d.cmd.Process.Signal(syscall.SIGQUIT))
	_ = d.cmd.Wait()
	all := must.Get(os.ReadFile(d.log))(s.t)
	return len(goroutineLine.FindAll(all[len(said):], -1))
}

// freshGoroutines are those of a daemon that had one chat.
func (s *lifeSoak) freshGoroutines() int {
	s.daemon = startDaemon(s.t, s.opt, "", modelProfiles)
	s.soak(1, 0)
	return s.goroutines(s.daemon)
}

// report prints a line for each verb, and draws the plot.
func (s *lifeSoak) report(last time.Duration) {
	by := map[string][]time.Duration{}
	for _, c := range s.took {
		by[c.verb] = append(by[c.verb], c.took)
	}
	s.t.Logf("%d calls in %s", len(s.took), time.Since(s.began).Round(time.Second))
	for verb, all := range by {
		slices.Sort(all)
		at := func(q float64) time.Duration {
			return all[int(q*float64(len(all)-1))].Round(100 * time.Microsecond)
		}
		s.t.Logf("%-10s %6d calls: median %8s, p99 %8s, worst %8s",
			verb, len(all), at(0.5), at(0.99), at(1))
	}
	if file := os.Getenv("CHATD_TEST_SOAK_PLOT"); file != "" {
		plot := drawSoak(s.took, s.used, max(last, time.Since(s.began)))
		must.Do(s.t, os.WriteFile(file, []byte(plot), 0o644))
	}
}

// plotWidth and plotHeight are of a panel, in pixels; plotParts is how many points a line has.
const plotWidth, plotHeight, plotParts = 720, 160, 60

// drawSoak is an SVG of two panels over time: the 99th percentile of all calls, and the memory of
// chatd's processes.
func drawSoak(took []tookCall, used []memorySample, last time.Duration) string {
	var latency [plotParts][]time.Duration
	part := func(at time.Duration) int { return min(max(int(at*plotParts/last), 0), plotParts-1) }
	for _, c := range took {
		latency[part(c.at)] = append(latency[part(c.at)], c.took)
	}
	var p99, memory [plotParts]float64
	for i, all := range latency {
		if slices.Sort(all); len(all) > 0 {
			p99[i] = float64(all[len(all)*99/100].Microseconds()) / 1000
		}
	}
	for _, m := range used {
		memory[part(m.at)] = float64(m.pss) / 1024
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="sans-serif" font-size="12">`+"\n", plotWidth+100, 2*plotHeight+120)
	drawPanel(&b, 20, "99th percentile of all calls, ms", p99[:], last)
	drawPanel(&b, plotHeight+70, "memory of chatd's processes (PSS), MiB", memory[:], last)
	b.WriteString("</svg>\n")
	return b.String()
}

// drawPanel draws one line with its axes. A part without a value is left out.
func drawPanel(b *strings.Builder, top int, title string, values []float64, last time.Duration) {
	highest := max(slices.Max(values), 1)
	var points []string
	for i, v := range values {
		if v > 0 {
			points = append(points, fmt.Sprintf("%d,%d", 60+i*plotWidth/len(values),
				top+plotHeight-int(v/highest*float64(plotHeight))))
		}
	}
	fmt.Fprintf(b, `<text x="60" y="%d">%s</text>`+"\n", top-5, title)
	fmt.Fprintf(b, `<path d="M60 %d V%d H%d" fill="none" stroke="black"/>`+"\n",
		top, top+plotHeight, 60+plotWidth)
	fmt.Fprintf(b, `<text x="55" y="%d" text-anchor="end">%.0f</text>`+"\n", top+10, highest)
	fmt.Fprintf(b, `<text x="55" y="%d" text-anchor="end">0</text>`+"\n", top+plotHeight)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
		60+plotWidth, top+plotHeight+15, last.Round(time.Second))
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="steelblue"/>`+"\n",
		strings.Join(points, " "))
}
