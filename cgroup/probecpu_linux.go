package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/chatd/chatd/chat"
)

// cpu lets a shell spin until the kernel says it was throttled. The quota is one that it uses up in
// a single turn of the scheduler. On a busy host it gets no more within a period.
func (p probe) cpu(ctx context.Context, id chat.ID) (string, error) {
	limits := chat.DefaultLimits()
	limits.CPUQuota, limits.CPUPeriod = chat.Duration(time.Millisecond), chat.Duration(40*time.Millisecond)
	if err := p.limitCPU(id, limits); err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, probeTime/4)
	defer stop()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "while :; do :; done")
	if err := p.start(id, cmd); err != nil {
		return "", err
	}
	seen, err := p.watchSpin(ctx, id)
	err = errors.Join(err, cmd.Process.Kill(), waitAny(cmd))
	if err == nil {
		err = seen.failed()
	}
	return "a child that spun with a quota of 1ms in 40ms was throttled; what a chat uses over its quota within one system call it pays back later", err
}

const (
	// spinWindow is two periods of the probe's quota, and overQuota CPU time that no child gets in
	// one window after another under it. In a single one it may seem so: an emulated machine for
	// which its host has no time counts what it did not get.
	spinWindow = 80 * time.Millisecond
	overQuota  = 10 * time.Millisecond
	// enoughOver is how many windows over the quota show that there is none.
	enoughOver = 5
)

// spin is what was seen of a child that spins.
type spin struct {
	throttled bool
	at        time.Time     // when the present window began
	used      time.Duration // the child's CPU time by then
	over      int           // windows in which it got more than overQuota
}

// look takes notice of the child's CPU time.
func (s *spin) look(now time.Time, used time.Duration) {
	if now.Sub(s.at) < spinWindow {
		return
	}
	if !s.at.IsZero() && used-s.used > overQuota {
		s.over++
	}
	s.at, s.used = now, used
}

// failed is nil for a child that was throttled. One that seldom got more than its quota has shown
// nothing: then the host had no time for it.
func (s *spin) failed() error {
	switch {
	case s.throttled:
		return nil
	case s.over < enoughOver:
		return fmt.Errorf("cannot try the CPU quota: a child that spun got little of the host's "+
			"time, %s: %w", s.used, context.DeadlineExceeded)
	}
	return fmt.Errorf("cannot bound CPU time: a child spun for %s with a quota of 1ms in 40ms "+
		"and was not throttled", s.used)
}

// watchSpin looks at the child until it is throttled, or the time allowed went by.
func (p probe) watchSpin(ctx context.Context, id chat.ID) (spin, error) {
	var s spin
	for {
		u, err := p.f.Usage(id)
		s.look(time.Now(), u.CPU.D())
		if s.throttled = u.Throttled > 0; err != nil || s.throttled {
			return s, err
		}
		if chat.Sleep(ctx, 5*time.Millisecond) != nil {
			return s, nil
		}
	}
}
