package cgroup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
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
	expect.True(t, len(f.locks.all) == 0, "%d locks are kept", len(f.locks.all))
}

// TestLendCPU: a run that dies slowly gets its chat one CPU for a moment, never more, and not again
// soon; the quota comes back, but not over limits that were set meanwhile.
func TestLendCPU(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	must.Do(t, f.LimitCPU(idA, limits()))
	quota := func() string {
		b := must.Get(cgroupfs.Read(f.quotaFile(idA)))(t)
		return strings.TrimSpace(string(b))
	}
	own, whole, err := f.quotas(idA)
	must.Do(t, err)
	must.True(t, own != "" && own != whole && quota() == own,
		"the quota is %q, one CPU is %q", own, whole)
	must.Do(t, f.lendCPU(idA))
	expect.Equal(t, quota(), whole, "lent")
	for quota() != own { // lendTime later
		time.Sleep(10 * time.Millisecond)
	}
	must.Do(t, f.lendCPU(idA))
	expect.Equal(t, quota(), own, "lent again at once")
	f.endLoan(idA, "1000 1000", "something else")
	expect.Equal(t, quota(), own, "a loan that is over changed limits")
}
