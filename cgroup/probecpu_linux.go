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
	throttled, err := p.awaitThrottled(ctx, id)
	err = errors.Join(err, cmd.Process.Kill(), waitAny(cmd))
	if err == nil && throttled == 0 {
		err = p.unthrottled(id)
	}
	return "a child that spun with a quota of 1ms in 40ms was throttled; what a chat uses over its quota within one system call it pays back later", err
}

// unthrottled is the error of a child that was not throttled. One that got no more than its quota
// has shown nothing: then the host had no time for it.
func (p probe) unthrottled(id chat.ID) error {
	u, err := p.f.usage(id)
	if err != nil {
		return err
	}
	if u.CPU.D() < enoughCPU {
		return fmt.Errorf("cannot try the CPU quota: a child that spun got %s of the host's time: %w",
			u.CPU, context.DeadlineExceeded)
	}
	return fmt.Errorf("cannot bound CPU time: a child spun for %s with a quota of 1ms in 40ms "+
		"and was not throttled", u.CPU)
}

// enoughCPU is CPU time that no child gets within [probeTime]/4 under the probe's quota.
const enoughCPU = probeTime / 4 / 10

// awaitThrottled returns 0 when the time allowed went by in vain.
func (p probe) awaitThrottled(ctx context.Context, id chat.ID) (uint64, error) {
	for {
		u, err := p.f.usage(id)
		if err != nil || u.Throttled > 0 {
			return u.Throttled, err
		}
		select {
		case <-ctx.Done():
			return 0, nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}
