package roottest

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestEgressStopped: nobody is told that a chat's connections are cut by a chatd-egress that does
// not answer; the change holds once it does.
func TestEgressStopped(t *testing.T) {
	newInternet(t)
	opt := named(t, "api.example.test:7000")
	m := open(t, opt)
	a := inmateOf(t, m, "stopped", "named")
	outcomes(t, "before", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	pids := egressesOf(opt)
	signalAll(pids, syscall.SIGSTOP)
	err := tryPatch(t, m, a.ID, `{"egress_remove": ["api.example.test:7000"]}`)
	signalAll(pids, syscall.SIGCONT)
	expect.True(t, errors.Is(err, chat.ErrBusy), "the answer is %v, want busy", err)
	until(t, "the change holds", func() bool {
		return a.try(t, "say", "api.example.test:7000", "x") == "NXDOMAIN"
	})
}

// TestEgressHangs: a chatd-egress that does not answer is killed and replaced. Chats that are awake
// connect again, others sleep and wake meanwhile.
func TestEgressHangs(t *testing.T) {
	newInternet(t)
	opt := named(t, "api.example.test:7000")
	m := open(t, opt)
	a := inmateOf(t, m, "hangs", "named")
	b := inmateOf(t, m, "meanwhile", "named")
	outcomes(t, "before", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	hung := egressesOf(opt)
	signalAll(hung, syscall.SIGSTOP)
	t.Cleanup(func() { signalAll(hung, syscall.SIGCONT) })
	must.Get(m.Sleep(operator(t.Context()), b.ID))(t)
	until(t, "another one carries", func() bool {
		now := egressesOf(opt)
		return len(now) > 0 && !slices.Equal(now, hung)
	})
	outcomes(t, "after", a.try(t, "say", "api.example.test:7000", "x"), "ok")
}
