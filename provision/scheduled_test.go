package provision

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

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
