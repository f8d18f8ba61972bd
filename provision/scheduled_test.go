package provision

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/supervise"
)

// The end of what was printed, in whole characters, however much was.
func TestTail(t *testing.T) {
	for _, c := range []struct{ printed, want string }{
		{"", ""},
		{"ab", "ab"},
		{strings.Repeat("x", 100000) + "end", strings.Repeat("x", chat.MaxTail-3) + "end"},
		{strings.Repeat("x", 3<<20) + "end", strings.Repeat("x", chat.MaxTail-3) + "end"},
		{strings.Repeat("é", chat.MaxTail) + "x", strings.Repeat("é", (chat.MaxTail-1)/2) + "x"},
		{"\xff\x80a", "\ufffda"},
	} {
		r := newLiveRun("0123456789abcdef", chat.Run{OutputMax: chat.DefaultOutputMax}, 0)
		r.dir = t.TempDir()
		f, err := os.Create(filepath.Join(r.dir, chat.Stdout))
		if err != nil {
			t.Fatal(err)
		}
		_, err = supervise.NewRing(f, chat.DefaultOutputMax).Write([]byte(c.printed))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := r.tail(); got != c.want || err != nil {
			t.Errorf("%.20q: %.40q of %d, %v", c.printed, got, len(got), err)
		}
	}
}

// The run of the time before, which is kept, is not that of the time that was taken.
func TestRunTaken(t *testing.T) {
	const id = chat.ID("0123456789abcdef")
	m, now := &Manager{}, time.Now()
	for i, by := range []byClock{{"a", now}, {"a", now.Add(time.Minute)}, {"b", now.Add(time.Minute)}, {}} {
		r := newLiveRun(id, chat.Run{ID: fmt.Sprint(i), Schedule: by.schedule}, 0)
		r.taken = by.taken
		m.runs.keep(r)
	}
	for _, c := range []struct {
		schedule string
		taken    *time.Time
		want     string
	}{{"a", new(now.Add(time.Minute)), "1"}, {"b", new(now.Add(time.Minute)), "2"}, {"a", new(now.Add(time.Hour)), ""}, {"b", new(now), ""}, {"a", nil, ""}} {
		got := ""
		if r := m.runTaken(id, state.Schedule{Schedule: chat.Schedule{ID: c.schedule, RunningSince: c.taken}}); r != nil {
			got = r.info.ID
		}
		if got != c.want {
			t.Errorf("%s at %v: %q, want %q", c.schedule, c.taken, got, c.want)
		}
	}
}

// What went wrong on the host is not told to whoever reads the result; what was denied
// has its rule, unless the rules are vague.
func TestWhyNot(t *testing.T) {
	m := &Manager{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if got := m.whyNot(chat.DueSchedule{}, errors.New("cannot open /var/lib/chatd/secret")); strings.Contains(got, "/var") || !strings.HasPrefix(got, "internal") {
		t.Errorf("%q", got)
	}
	if got := m.whyNot(chat.DueSchedule{}, fmt.Errorf("cannot run: %s: %w", strings.Repeat("x", 5000), chat.ErrBusy)); len(got) != 1<<10 {
		t.Errorf("%d bytes", len(got))
	}
	d := &chat.RunDenial{Rule: "rm-rf"}
	if got := deniedBy(errors.Join(d, nil)); got != "rm-rf" {
		t.Errorf("%q", got)
	}
	d.Terse = true
	if got := deniedBy(d); got != "" {
		t.Errorf("%q", got)
	}
}
