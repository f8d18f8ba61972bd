package cgroup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// TestChatLocks: a chat that is held up holds up no other, however many there are.
func TestChatLocks(t *testing.T) {
	var f FS
	var held []*chatLock
	for i := range 500 {
		held = append(held, f.lock(chat.ID(fmt.Sprintf("%016x", i))))
	}
	for _, l := range held {
		l.Unlock()
	}
	if len(f.locks.all) > 0 {
		t.Errorf("%d locks are kept", len(f.locks.all))
	}
}

// TestLendCPU: a run that dies slowly gets its chat one CPU for a moment, never more, and not again
// soon; the quota comes back, but not over limits that were set meanwhile.
func TestLendCPU(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	must(t, f.LimitCPU(idA, limits()))
	quota := func() string {
		b, err := cgroupfs.Read(f.quotaFile(idA))
		must(t, err)
		return strings.TrimSpace(string(b))
	}
	own, whole, err := f.quotas(idA)
	must(t, err)
	if own == "" || own == whole || quota() != own {
		t.Fatalf("the quota is %q, one CPU is %q", own, whole)
	}
	must(t, f.lendCPU(idA))
	if quota() != whole {
		t.Errorf("lent is %q, want %q", quota(), whole)
	}
	for quota() != own { // lendTime later
		time.Sleep(10 * time.Millisecond)
	}
	must(t, f.lendCPU(idA))
	if quota() != own {
		t.Errorf("lent again at once: %q", quota())
	}
	f.endLoan(idA, "1000 1000", "something else")
	if quota() != own {
		t.Errorf("a loan that is over changed limits: %q", quota())
	}
}
