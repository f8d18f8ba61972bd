package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackFullDisk: A fills the file system that chatd's own state is on, by its /tmp (no quota,
// SECURITY.md). Nothing begins then that could not be written down, and of what was refused nothing
// is left; but A can still be reaped, which gives the room back, and then everything goes on for B,
// its schedules too.
func TestAttackFullDisk(t *testing.T) {
	opt := attackOptions(t)
	if !onHost() { // where PAM knows the state's directory; there it is as large as the disk
		must.Do(t, os.MkdirAll(opt.State, 0o711))
		must.Do(t, unix.Mount("tmpfs", opt.State, "tmpfs", 0, "size=24m,mode=711"))
		t.Cleanup(func() { must.Do(t, unix.Unmount(opt.State, unix.MNT_DETACH)) })
	}
	clock := nine()
	m := open(t, opt)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	a, b := create(t, m, "full a", "default"), create(t, m, "full b", "default")
	s := scheduled(t, k, b.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "echo on"})
	r := startRun(t, m, a.ID, chat.RunSpec{Command: "echo on; exec sleep 1000"})
	awaitOutput(t, m, a.ID, r.ID, "on")
	ctx := operator(t.Context())
	if !onHost() {
		run(t, m, a.ID, "cat /dev/zero >/tmp/fill")
		_, start := m.StartRun(ctx, b.ID, chat.RunSpec{Command: "echo begun >began"})
		_, run := m.Run(ctx, b.ID, chat.RunSpec{Command: "echo begun >began"})
		_, wait := m.InputWait(ctx, b.ID, chat.Input{Text: "echo begun >began\n", Wait: &chat.Wait{Until: chat.UntilPrompt}})
		_, schedule := k.AddSchedule(ctx, b.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "echo begun >began"})
		for what, err := range map[string]error{"a background run": start, "a run": run, "input": wait, "a schedule": schedule} {
			if err == nil || !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "reap a chat, or make room") {
				t.Errorf("%s on a full disk: %v", what, err)
			}
		}
		if left := runLeaves(t, opt); strings.Count(fmt.Sprint(left), r.ID) != len(left) {
			t.Errorf("leaves besides that of %s: %v", r.ID, left)
		}
		expect.True(t, expect.Err(os.Lstat(filepath.Join(b.Home, "began"))) != nil,
			"something began that was not written down")
	}
	must.Do(t, m.Reap(ctx, a.ID))
	clock.move(70 * time.Second)
	if got := waitScheduled(t, k, b.ID, s.ID, 1); got.Last.Output != "on\n" {
		t.Errorf("%+v", got.Last)
	}
	if got := run(t, m, b.ID, "echo on"); got.Stdout != "on\n" {
		t.Errorf("%+v", got)
	}
	if left, gone := supervisors(t), runLeaves(t, opt); len(left)+len(gone) > 0 {
		t.Errorf("left of A: %v, %v", left, gone)
	}
}
