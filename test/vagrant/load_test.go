//go:build e2e

package vagrant

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestHostDaemonReload creates 100 chats (20 under -short) while PID 1 reads all
// its units again and again.
func TestHostDaemonReload(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 10
	}
	var reloads atomic.Int64
	enough, end := make(chan struct{}), make(chan struct{})
	var reloader sync.WaitGroup
	reloader.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				// As long a pause as the reload took, or a slow machine does nothing else.
				begin := time.Now()
				_, err := try(timeout, "systemctl", "daemon-reload")
				if err == nil && reloads.Add(1) == 3 {
					close(enough)
				}
				time.Sleep(time.Since(begin))
			}
		}
	})
	var made []chat.Chat
	var mu sync.Mutex
	each(4, n, func(int) {
		c, err := ask(chat.Spec{ExternalID: external(t)})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Errorf("create during daemon-reload: %v", err)
			return
		}
		made = append(made, c)
	})
	// A machine with little else to do creates some chats within a reload.
	select {
	case <-enough:
	case <-time.After(timeout):
		t.Errorf("only %d reloads: nothing was tried", reloads.Load())
	}
	close(end)
	reloader.Wait()
	t.Logf("%d chats were made within %d reloads", len(made), reloads.Load())
	awake := strings.Count(output(t, "systemctl", "list-units", "--no-legend", "--plain", "--state=running", "chatd-*.service"), "chatd-")
	expect.True(t, awake >= n, "%d units run, want %d", awake, n)
	each(4, len(made), func(i int) {
		c := made[i]
		b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", slice, unitOf(c.ID), "pids.max"))
		expect.True(t, err == nil && strings.TrimSpace(string(b)) == "200", "chat %s: pids.max is %q, %v", c.ID, b, err)
		expect.NoError(t, reap(c.ID))
	})
	leftNothing(t, made)
}

// each calls do for 0 to n-1 by some workers.
func each(workers, n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// leftNothing wants no unit, home, account, process and record of these chats.
func leftNothing(t *testing.T, chats []chat.Chat) {
	t.Helper()
	known := map[chat.ID]bool{}
	for _, c := range all(t) {
		known[c.ID] = true
	}
	for _, c := range chats {
		for _, path := range []string{
			c.Home, filepath.Join(userdb, c.User+".user"), filepath.Join(userdb, fmt.Sprint(c.UID)+".user"),
			filepath.Join("/sys/fs/cgroup", slice, unitOf(c.ID)), filepath.Join(stateDir, "tmp", c.User), filepath.Join(stateDir, "vartmp", c.User),
		} {
			expect.Is(t, expect.Err(os.Lstat(path)), os.ErrNotExist, "chat %s left %s", c.ID, path)
		}
		for _, dir := range []string{"/run/systemd/units", "/run/systemd/transient", "/run/chatd/sessions"} {
			if left, _ := filepath.Glob(dir + "/*" + string(c.ID) + "*"); len(left) > 0 {
				t.Errorf("chat %s left %v", c.ID, left)
			}
		}
		expect.True(t, !known[c.ID], "chat %s is still listed", c.ID)
		left := pidsOf(t, c.UID)
		expect.True(t, len(left) == 0, "chat %s left processes %v", c.ID, left)
	}
}

// retryable says whether a caller may ask again after err: the daemon was busy or
// not there, or it went away with the answer.
func retryable(err error) bool {
	return errors.Is(err, chat.ErrBusy) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// insist asks again after retryable errors, as a bridge does.
func insist(retries *atomic.Int64, do func() error) error {
	for end := time.Now().Add(2 * timeout); ; time.Sleep(300 * time.Millisecond) {
		err := do()
		if err == nil || !retryable(err) || time.Now().After(end) {
			return err
		}
		retries.Add(1)
	}
}

// TestHostRestartUnderLoad restarts chatd five times (twice) while ten (four) workers create, run
// in and reap chats; -short has the figures in brackets. Callers see retryable errors only, two
// sessions that are there all the while stay what they are, and no half chat is left.
func TestHostRestartUnderLoad(t *testing.T) {
	restarts, workers := 5, 10
	if testing.Short() {
		restarts, workers = 2, 4
	}
	a, b := create(t, ""), create(t, "")
	before := map[chat.ID]session{a.ID: sessionOf(t, a.ID), b.ID: sessionOf(t, b.ID)}
	var stop atomic.Bool
	var lives, retries atomic.Int64
	var mu sync.Mutex
	var made []chat.Chat
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for !stop.Load() {
				c, err := life(t, &retries)
				if err != nil {
					t.Errorf("a caller saw: %v", err)
					return
				}
				lives.Add(1)
				mu.Lock()
				made = append(made, c)
				mu.Unlock()
			}
		})
	}
	for range restarts {
		time.Sleep(3 * time.Second)
		expect.NoError(t, tryRestart())
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d lives during %d restarts, %d retries", lives.Load(), restarts, retries.Load())
	expect.True(t, lives.Load() >= int64(workers)/2, "too few lives: nothing was tried")
	for id, was := range before {
		expect.Equal(t, sessionOf(t, id), was, "the session was %+v and", was)
		expect.Equal(t, said(t, id, "echo alive"), "alive", "a run says")
	}
	leftNothing(t, made)
	expect.NoError(t, healthy())
}

// life is one chat from its first message to its end.
func life(t *testing.T, retries *atomic.Int64) (c chat.Chat, err error) {
	spec := chat.Spec{ExternalID: external(t)}
	if err = insist(retries, func() (err error) { c, err = ask(spec); return err }); err != nil {
		return c, fmt.Errorf("create: %w", err)
	}
	if err = insist(retries, func() error { return wantRun(c.ID, "echo alive", "alive") }); err != nil {
		return c, fmt.Errorf("run: %w", err)
	}
	if err = insist(retries, func() error { return reap(c.ID) }); err != nil {
		return c, fmt.Errorf("reap: %w", err)
	}
	return c, nil
}
