//go:build e2e

package vagrant

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// stepClock moves the wall clock; the monotonic one goes on.
func stepClock(by time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return fmt.Errorf("cannot read the clock: %w", err)
	}
	to := unix.NsecToTimespec(now.Nano() + int64(by))
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &to); err != nil {
		return fmt.Errorf("cannot set the clock: %w", err)
	}
	return nil
}

// TestHostClock steps the clock a day ahead and then a day back, with chatd
// running and with a restart on the other side: nobody is reaped or ended, chats
// can be made, and the audit log stays one chain in one order.
func TestHostClock(t *testing.T) {
	awake := create(t, "")
	asleep := must.Get(ask(chat.Spec{ExternalID: external(t), Awake: new(bool)}))(t)
	t.Cleanup(func() { must.Do(t, reap(asleep.ID)) })
	before := sessionOf(t, awake.ID)
	const day = 24 * time.Hour
	var stepped time.Duration
	step := func(by time.Duration) {
		must.Do(t, stepClock(by))
		stepped += by
	}
	t.Cleanup(func() { must.Do(t, stepClock(-stepped)) })
	for _, by := range []time.Duration{day, -2 * day} {
		was := time.Now()
		step(by)
		moved := time.Now().Round(0).Sub(was.Round(0))
		must.True(t, (moved-by).Abs() <= time.Hour, "the clock moved by %v, want %v", moved, by)
		checkAfterStep(t, by, awake, asleep, before)
		restart(t)
		checkAfterStep(t, by, awake, asleep, before)
	}
	checkAudit(t)
}

func checkAfterStep(t *testing.T, by time.Duration, awake, asleep chat.Chat, before session) {
	t.Helper()
	expect.Equal(t, sessionOf(t, awake.ID), before,
		"after a step of %v the session was %+v and", by, before)
	expect.Equal(t, said(t, awake.ID, "echo alive"), "alive", "after a step of %v a run says", by)
	if got := get(t, asleep.ID); got.UID != asleep.UID || got.Awake || got.Phase != chat.Ready {
		t.Errorf("after a step of %v the sleeping chat is %+v", by, got)
	}
	c, err := ask(chat.Spec{ExternalID: external(t), Awake: new(bool)})
	if err != nil {
		t.Errorf("create after a step of %v: %v", by, err)
		return
	}
	must.Do(t, reap(c.ID))
}

// checkAudit verifies the whole log and that its numbers only rise, by one.
func checkAudit(t *testing.T) {
	t.Helper()
	var files []string
	eventually(t, timeout, "the audit log holds", func() (ok bool) {
		var err error
		files, err = state.AuditFiles(stateDir)
		if err == nil {
			_, _, err = state.CheckAudit(stateDir) // a line may be half written at any moment
		}
		return err == nil
	})
	var last uint64
	for _, path := range files {
		f := must.Get(os.Open(path))(t)
		for in := bufio.NewScanner(f); in.Scan(); {
			var l struct {
				Seq uint64 `json:"seq"`
			}
			must.Do(t, json.Unmarshal(in.Bytes(), &l))
			if last > 0 && l.Seq != last+1 {
				t.Errorf("line %d of the audit log follows line %d", l.Seq, last)
			}
			last = l.Seq
		}
		must.Do(t, f.Close())
	}
	expect.True(t, last != 0, "the audit log is empty")
}

// missing says that a path is not there; any other trouble is an answer too.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
