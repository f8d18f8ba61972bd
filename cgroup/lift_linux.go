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

// lendCPU raises a chat's quota to one CPU for a moment, unless that was done lately. To set a
// quota also ends the throttling that there is.
func (f *FS) lendCPU(id chat.ID) error {
	defer f.lock(id).Unlock()
	f.mu.Lock()
	last, lately := f.lent[id]
	if lately = lately && time.Since(last) < lendEvery; !lately {
		f.lent[id] = time.Now()
	}
	f.mu.Unlock()
	if lately {
		return nil
	}
	if err := f.lendOthers(id); err != nil {
		return err
	}
	dir, file := f.quotaFile(id)
	own, whole, err := f.quotas(id)
	if err != nil || own == "" {
		return err
	}
	if err := cgroupfs.Write(dir, file, whole); err != nil {
		return err
	}
	time.AfterFunc(lendTime, func() { f.endLoan(id, own, whole) })
	return nil
}

// endLoan sets the chat's own quota again, unless somebody has set another or the chat is being
// ended.
func (f *FS) endLoan(id chat.ID, own, whole string) {
	defer f.lock(id).Unlock()
	f.mu.Lock()
	_, lent := f.lent[id]
	f.mu.Unlock()
	dir, file := f.quotaFile(id)
	now, err := cgroupfs.Read(dir, file)
	if err != nil || strings.TrimSpace(string(now)) != whole || !lent {
		return // the chat's tree is gone, or has its limits
	}
	_ = cgroupfs.Write(dir, file, own) // it fails where the tree is gone by now
}

// lendOthers lifts for the same moment what else the dying would wait for.
func (f *FS) lendOthers(id chat.ID) error {
	lent := func(b bound) bool { return !b.late && b.lift != nil }
	if err := f.lift(id, lent); err != nil {
		return err
	}
	time.AfterFunc(lendTime, func() {
		defer f.lock(id).Unlock()
		f.mu.Lock()
		_, still := f.lent[id]
		l, known := f.limits[id]
		f.mu.Unlock()
		if still && known {
			_ = f.setBounds(id, l, lent) // it fails where the tree is gone by now
		}
	})
	return nil
}

// quotaFile is the file of the chat's CPU quota.
func (f *FS) quotaFile(id chat.ID) (dir, file string) {
	if f.legacy != nil {
		return f.legacy.dir("cpu", id, ""), "cpu.cfs_quota_us"
	}
	return f.dir(id), "cpu.max"
}

// quotas are the chat's own quota as its file has it, and one of a whole CPU; empty where the chat
// has none, or as much already.
func (f *FS) quotas(id chat.ID) (own, whole string, err error) {
	dir, file := f.quotaFile(id)
	b, err := cgroupfs.Read(dir, file)
	if err != nil {
		return "", "", err
	}
	own = strings.TrimSpace(string(b))
	quota, period, _ := strings.Cut(own, " ")
	whole = period + " " + period
	if f.legacy != nil {
		if b, err = cgroupfs.Read(dir, "cpu.cfs_period_us"); err != nil {
			return "", "", err
		}
		period = strings.TrimSpace(string(b))
		whole = period
	}
	if quota == "-1" || quota == "max" {
		return "", "", nil
	}
	has, err := cgroupfs.Number(quota)
	if err == nil {
		var all uint64
		if all, err = cgroupfs.Number(period); has >= all {
			return "", "", err
		}
	}
	return own, whole, err
}
