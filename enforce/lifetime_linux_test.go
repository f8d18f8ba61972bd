package enforce

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAskedWhileReleased: a session is let go of and taken again while others ask about
// it, bring it to other rules and look at it again. Nobody waits for ever, nothing is
// ended by mistake, and what is kept at the end is kept.
func TestAskedWhileReleased(t *testing.T) {
	s := newInside(t, false, false)
	file := filepath.Join(s.home, ".env")
	must.Do(t, os.WriteFile(file, nil, 0o666))
	must.Do(t, os.Chmod(file, 0o666))
	stop := make(chan bool)
	var all sync.WaitGroup
	again := func(do func()) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					do()
				}
			}
		})
	}
	again(func() {
		if _, err := s.k.execute(orders.Order{Verb: orders.Probe, Chat: s.order.Chat, PID: s.order.PID, Start: s.order.Start}); err != nil && !errors.Is(err, chat.ErrNotFound) {
			t.Error(err)
		}
	})
	for _, rules := range []string{"access: {deny: [.env]}", "access: {deny: [.env, '**/secrets/**']}"} {
		again(func() {
			if _, err := s.hold(rules); err != nil && !errors.Is(err, chat.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	again(s.k.sweep)
	again(func() { s.k.queueRecheck(s.order.Chat); time.Sleep(time.Millisecond) })
	again(func() {
		if k := s.k.named(s.order.Chat); k != nil && k.ended() && !isClosed(k) {
			t.Error("a session that is kept is said to have ended")
		}
	})
	for range 30 {
		time.Sleep(10 * time.Millisecond)
		_, _ = s.k.execute(orders.Order{Verb: orders.Drop, Chat: s.order.Chat})
	}
	close(stop)
	all.Wait()
	must.Get(s.hold("access: {deny: [.env]}"))(t)
	if got := s.try(t, []string{file}); got[0] != (openResult{}) {
		t.Errorf("after all that: %+v", got[0])
	}
}

func isClosed(k *session) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed
}

// TestRelease: what still has a session in hand when it is let go of harms nobody, also
// not who has got the numbers of its descriptors.
func TestRelease(t *testing.T) {
	s := newInside(t, false, false)
	must.Get(s.hold("access: {deny: [.env]}"))(t)
	old := s.k.named(s.order.Chat)
	s.k.drop(s.order.Chat)
	other := exec.Command("sleep", "60")
	must.Do(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	for range 8 { // also those that old had
		fd := must.Get(unix.PidfdOpen(other.Process.Pid, 0))(t)
		defer unix.Close(fd)
	}
	expect.True(t, old.ended(), "a session that was let go of goes on")
	s.k.end(old, errors.New("a test"))
	must.Do(t, old.kill())
	expect.Is(t, s.k.apply(old, nil), chat.ErrNotFound,
		"rules are raised in a session that was let go of")
	old.close()
	s.k.forget(old)
	s.try(t, nil) // neither it nor another was ended
	expect.NoError(t, other.Process.Signal(unix.Signal(0)))
	if left, _ := filepath.Glob(filepath.Join(s.k.dir, "sessions", "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
