package cgroup

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// birth is what was seen when a chat's CPU quota was last lifted for a start.
type birth struct {
	at        time.Time
	throttled uint64
}

// startLifted starts a child of cgroup v2 with the chat's CPU quota lifted until its exec. A child
// born out of quota waits for the next period. Go's vfork keeps one of the scheduler's processors
// meanwhile, so the next garbage collection stops all of chatd (4 s in a VM, tried). One chat could
// stall all.
//
// Setting a quota also fills it up. A chat that is being throttled gets this once a period. So it
// has at most twice its quota, while its bridge starts runs in it.
func (f *FS) startLifted(id chat.ID, cmd *exec.Cmd) error {
	for {
		wait, err := f.tryLifted(id, cmd)
		if wait <= 0 {
			return err
		}
		time.Sleep(wait)
	}
}

// tryLifted starts, or says how long to wait first.
func (f *FS) tryLifted(id chat.ID, cmd *exec.Cmd) (wait time.Duration, err error) {
	defer f.lock(id).Unlock()
	text, err := cgroupfs.Read(f.dir(id), "cpu.max")
	if err != nil {
		return 0, err
	}
	quota := strings.TrimSpace(string(text))
	if strings.HasPrefix(quota, "max") {
		return 0, cmd.Start()
	}
	if wait, err = f.mayLift(id, quota); wait > 0 || err != nil {
		return wait, err
	}
	if err := cgroupfs.Write(f.dir(id), "cpu.max", "max"); err != nil {
		return 0, err
	}
	err = cmd.Start()
	if rerr := cgroupfs.Write(f.dir(id), "cpu.max", quota); rerr != nil && err == nil {
		// Started without a quota is worse than not started.
		return 0, errors.Join(rerr, cmd.Process.Kill(), waitAny(cmd))
	}
	return 0, err
}

// mayLift returns how long to wait when the chat was throttled since the last
// lift and that was less than a period ago.
func (f *FS) mayLift(id chat.ID, quota string) (wait time.Duration, err error) {
	throttled, err := cgroupfs.ReadFlat(f.dir(id), "cpu.stat", "nr_throttled")
	if err != nil {
		return 0, err
	}
	_, micros, _ := strings.Cut(quota, " ")
	period, err := cgroupfs.Number(micros)
	if err != nil {
		return 0, fmt.Errorf("cannot read cpu.max %q: %w", quota, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last, seen := f.births[id]
	if seen && throttled != last.throttled {
		wait = time.Until(last.at.Add(time.Duration(period) * time.Microsecond))
	}
	if wait <= 0 {
		f.births[id] = birth{time.Now(), throttled}
	}
	return wait, nil
}

// How long a chat may use one whole CPU for a run that dies slowly, and how often at most. The
// chat's other processes have that time too, so a chat may gain a tenth of a CPU.
const (
	lendTime  = time.Second
	lendEvery = 10 * time.Second
)

// lendCPU raises a chat's quota to one CPU for a moment, and lifts what else the dying would wait
// for, unless that was done lately. To set a quota also ends the throttling that there is.
func (f *FS) lendCPU(id chat.ID) error {
	defer f.lock(id).Unlock()
	f.mu.Lock()
	lately := time.Since(f.lent[id]) < lendEvery
	if !lately {
		f.lent[id] = time.Now()
	}
	f.mu.Unlock()
	if lately {
		return nil
	}
	if err := f.lift(id, isEarly); err != nil {
		return err
	}
	own, whole, err := f.quotas(id)
	if err == nil && own != "" {
		dir, file := f.file(id, "", "cpu.max")
		err = cgroupfs.Write(dir, file, whole)
	}
	time.AfterFunc(lendTime, func() { f.endLoan(id, own, whole) })
	return err
}

// endLoan sets the chat's bounds again, unless the chat is being ended, and its quota, unless
// somebody has set another. What it writes fails where the chat's tree is gone by now.
func (f *FS) endLoan(id chat.ID, own, whole string) {
	defer f.lock(id).Unlock()
	f.mu.Lock()
	_, lent := f.lent[id]
	l, known := f.limits[id]
	f.mu.Unlock()
	if !lent {
		return
	}
	if known {
		_ = f.setBounds(id, l, func(b bound) bool { return !b.late && b.lift != nil })
	}
	dir, file := f.file(id, "", "cpu.max")
	if now, err := cgroupfs.Read(dir, file); err == nil && strings.TrimSpace(string(now)) == whole {
		_ = cgroupfs.Write(dir, file, own)
	}
}

// quota is the chat's CPU quota and its period, as the kernel has them: "max" or -1 is none.
func (f *FS) quota(id chat.ID) (quota, period string, err error) {
	dir, file := f.file(id, "", "cpu.max")
	text, err := cgroupfs.Read(dir, file)
	quota, period, _ = strings.Cut(strings.TrimSpace(string(text)), " ")
	if f.legacy != nil && err == nil {
		text, err = cgroupfs.Read(dir, "cpu.cfs_period_us")
		period = strings.TrimSpace(string(text))
	}
	return quota, period, err
}

// quotas are the chat's own quota as its file has it, and one of a whole CPU; empty where the chat
// has none, or as much already.
func (f *FS) quotas(id chat.ID) (own, whole string, err error) {
	quota, period, err := f.quota(id)
	if err != nil || quota == "-1" || quota == "max" {
		return "", "", err
	}
	has, err := cgroupfs.Number(quota)
	all, perr := cgroupfs.Number(period)
	if err = errors.Join(err, perr); err != nil || has >= all {
		return "", "", err
	}
	if f.legacy != nil {
		return quota, period, nil
	}
	return quota + " " + period, period + " " + period, nil
}
