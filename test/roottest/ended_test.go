package roottest

import (
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// hog is a shell command whose child is ended for memory_max, which says nothing and exits 1, as an
// agent does whose worker the kernel takes.
const hog = `perl -e '$x = "a" x 600000000' >/dev/null 2>&1; exit 1`

// TestLimitsAreSaid: which limit ended what is in the answer of a run, in that of a background
// run, and in the log of the terminal.
func TestLimitsAreSaid(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "says why", "default")
	outOfMemory := func(what string, r chat.RunResult) {
		t.Helper()
		if why := strings.Join(r.Why, "; "); r.Exit != 1 || r.EndedBy != chat.EndedByMemory || !strings.Contains(why, "256MiB (memory_max)") {
			t.Errorf("%s: %+v", what, r)
		}
	}
	outOfMemory("run", run(t, m, c.ID, hog))
	b := startRun(t, m, c.ID, chat.RunSpec{Command: hog})
	outOfMemory("background run", *awaitRun(t, m, c.ID, b.ID).Result)

	forks := run(t, m, c.ID, "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; exit 3")
	if why := strings.Join(forks.Why, "; "); forks.PidsRefused == 0 || !strings.Contains(why, "200 processes and threads (pids_max)") {
		t.Errorf("forks: %+v", forks)
	}
	if r := run(t, m, c.ID, "true"); len(r.Why) > 0 || r.EndedBy != "" {
		t.Errorf("a run that met nothing: %+v", r)
	}

	left := run(t, m, c.ID, "sleep 300 >/dev/null 2>&1 & sleep 300 >/dev/null 2>&1 & echo started")
	if why := strings.Join(left.Why, "; "); left.Exit != 0 || left.EndedBy != "" || !strings.HasPrefix(why, "2 processes that the command left running ended with it") {
		t.Errorf("a server that was left: %+v", left)
	}

	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "(" + hog + ")", Enter: true}))
	until(t, "the terminal's log says which limit it met", func() bool {
		return strings.Contains(terminalLog(t, m, c.ID), "[chatd: out of memory: the kernel ended 1 process of the terminal")
	})
}

// terminalLog is everything that is kept of a terminal.
func terminalLog(t *testing.T, m *manager, id chat.ID) string {
	t.Helper()
	var text strings.Builder
	for at := int64(-1); ; {
		l := must.Get(m.Log(operator(t.Context()), id, at))(t)
		text.Write(l.Bytes())
		if at = l.Cursor; at >= l.End {
			return text.String()
		}
	}
}

// TestRunsSayWhatEndedThem: a run that is ended from outside says by what, in the foreground and
// in the background.
func TestRunsSayWhatEndedThem(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	ways := map[chat.EndedBy]func(t *testing.T, c chat.Chat, runs []string){
		chat.EndedBySleep: func(t *testing.T, c chat.Chat, _ []string) { must.Get(m.Sleep(ctx, c.ID))(t) },
		chat.EndedByReap:  func(t *testing.T, c chat.Chat, _ []string) { must.Do(t, m.Reap(ctx, c.ID)) },
		chat.EndedBySession: func(t *testing.T, c chat.Chat, _ []string) {
			must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "exit", Enter: true}))
		},
		chat.EndedByRequest: func(t *testing.T, c chat.Chat, runs []string) {
			for _, r := range runs {
				must.Do(t, m.EndRun(ctx, c.ID, r))
			}
		},
	}
	for by, end := range ways {
		t.Run(string(by), func(t *testing.T) {
			c := create(t, m, "ended by "+string(by), "default")
			spec := chat.RunSpec{Argv: []string{"sleep", "600"}, Timeout: chat.Duration(10 * time.Minute)}
			b := startRun(t, m, c.ID, spec)
			begun, ended := make(chan string, 1), make(chan chat.RunResult, 1)
			spec.Started = func(run string) { begun <- run }
			go func() {
				r, err := m.Run(ctx, c.ID, spec)
				expect.NoError(t, err)
				ended <- r
			}()
			end(t, c, []string{b.ID, <-begun})
			if r := <-ended; r.EndedBy != by || len(r.Why) != 1 {
				t.Errorf("in the foreground: %+v", r)
			}
			if by == chat.EndedByReap {
				return // a background run of it is gone
			}
			if r := awaitRun(t, m, c.ID, b.ID).Result; r.EndedBy != by || len(r.Why) != 1 {
				t.Errorf("in the background: %+v", r)
			}
		})
	}
	c := create(t, m, "what the log says", "default")
	must.Get(m.Sleep(ctx, c.ID))(t)
	if log := terminalLog(t, m, c.ID); !strings.Contains(log, "[chatd: the chat was put to sleep]") {
		t.Errorf("the log of a chat that sleeps: %q", log)
	}
}
