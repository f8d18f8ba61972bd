package roottest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestScheduleOutlivesFront: the clock of schedules ends with the front, and the next front goes
// on with it. A run that was in progress has its result, once, and a time that comes later is
// taken. The front knows time zones though it can open no file.
func TestScheduleOutlivesFront(t *testing.T) {
	d := startDaemon(t, options(t), "")
	ctx := t.Context()
	c, _, err := d.Create(ctx, chat.Spec{ExternalID: "scheduled"})
	must.Do(t, err)
	at := func(in time.Duration, command string) chat.Schedule {
		for ; ; in *= 2 {
			when := time.Now().Add(in).UTC().Format(time.RFC3339Nano)
			s, err := d.AddSchedule(ctx, c.ID, chat.ScheduleSpec{At: when, Command: command})
			if in < longEnough && errors.Is(err, chat.ErrInvalid) {
				continue // the time was over before it was read
			}
			must.Do(t, err)
			return s
		}
	}
	noon := chat.ScheduleSpec{Cron: "0 12 1 7 *", TimeZone: "Asia/Tokyo", Command: "true"}
	zoned, err := d.AddSchedule(ctx, c.ID, noon)
	expect.True(t, err == nil && zoned.Next != nil && zoned.Next.UTC().Hour() == 3,
		"noon in Tokyo is %v, %v", zoned.Next, err)
	long := at(time.Second, "until test -e go; do sleep 0.1; done; echo went on")
	until(t, "the run begins", func() bool {
		s := must.Get(d.Schedule(ctx, c.ID, long.ID))(t)
		return s.RunningSince != nil
	})
	first := frontOf(t, d.cmd.Process.Pid)
	must.Do(t, unix.Kill(first, unix.SIGKILL))
	until(t, "another front comes", func() bool { return frontOf(t, d.cmd.Process.Pid) != first })
	later := at(2*time.Second, "echo later")
	must.Do(t, unix.Kill(frontOf(t, d.cmd.Process.Pid), unix.SIGKILL))
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "go"), nil, 0o666))
	for id, want := range map[string]string{long.ID: "went on\n", later.ID: "later\n"} {
		var s chat.Schedule
		until(t, "schedule "+strings.TrimSpace(want)+" has run", func() bool {
			s, err = d.Schedule(ctx, c.ID, id)
			return err == nil && s.Last != nil && s.RunningSince == nil
		})
		if s.Last.Output != want || s.Last.Exit != 0 || s.Last.Error != "" ||
			s.Runs != 1 || s.Missed != 0 || s.Next != nil {
			t.Errorf("%+v, %+v", s, s.Last)
		}
	}
	must.Do(t, d.Reap(ctx, c.ID))
}
