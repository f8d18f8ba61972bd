package roottest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
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
	n := must.Get(strconv.Atoi(s))(t)
	return n
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
	l := soakLeft{Goroutines: runtime.NumGoroutine(), Descriptors: len(fds), Leaves: len(runLeaves(t, opt)), Supervisors: len(supervisors(t))}
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
