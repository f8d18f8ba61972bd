package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/chatd/chatd/chat"
)

// tell notifies systemd (sd_notify(3)), if NOTIFY_SOCKET is set.
func tell(lines ...string) error {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("cannot tell systemd %q: %w", lines, err)
	}
	return nil
}

// A start completes interrupted work and adopts every session, which with thousands of chats
// takes longer than a unit's TimeoutStartSec. While it makes progress, it asks systemd for
// more time, a little at a time.
const (
	startMore    = 30 * time.Second
	startTimeout = 5 * time.Minute
)

// starting is the last step of a start, with its time.
type starting struct {
	mu   sync.Mutex
	what string
	at   time.Time
}

// did is [provision.Options.Progress].
func (s *starting) did(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what, s.at = what, time.Now()
}

func (s *starting) last() (what string, ago time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.what, time.Since(s.at)
}

// extend asks systemd for more time to start, until stop is called. If a start makes no progress
// for the timeout, it asks no more, and systemd ends the start after the last extension.
func (s *starting) extend(log *slog.Logger, every, timeout time.Duration) (stop func()) {
	s.did("raising the walls")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; _ = chat.Sleep(ctx, every) {
			what, ago := s.last()
			if ago > timeout {
				log.Error("the start does not get on", "since", ago, "after", what)
				return
			}
			more := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (3 * every).Microseconds())
			if err := tell(more, "STATUS="+what); err != nil {
				log.Warn("no more time to start", "why", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// watch notifies systemd at intervals until ctx ends: of the number of chats and, if the unit
// has a watchdog, that the daemon is well. It does the latter only after answers, which has half
// of that time, returned without an error; after an error it tries again soon. A daemon that
// hangs sends nothing, and systemd restarts it.
func watch(ctx context.Context, log *slog.Logger, every time.Duration, guarded bool, answers func(context.Context) (status string, err error)) {
	for next := every; ctx.Err() == nil; _ = chat.Sleep(ctx, next) {
		tryCtx, cancel := context.WithTimeout(ctx, every/2)
		status, err := answers(tryCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			log.Error("chatd does not answer itself", "why", err)
			next = every / 8
			continue
		}
		next = every
		lines := []string{"STATUS=" + status}
		if guarded {
			lines = append(lines, daemon.SdNotifyWatchdog)
		}
		if err := tell(lines...); err != nil {
			log.Warn("systemd does not hear chatd", "why", err)
		}
	}
}

// statusEvery is how often the status is sent where there is no watchdog.
const statusEvery = 30 * time.Second

// watchInterval is half of what the unit's WatchdogSec wants.
func watchInterval() (every time.Duration, guarded bool, err error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, false, fmt.Errorf("cannot read the watchdog's interval: %w", err)
	}
	if limit == 0 {
		return statusEvery, false, nil
	}
	return limit / 2, true, nil
}
