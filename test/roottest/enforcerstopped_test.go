package roottest

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStoppedEnforcer: while the enforcer is stopped, chats without rules are created, sleep and
// wake. It is killed and replaced, and then a chat with rules begins, and those of the chat that was
// awake hold.
func TestStoppedEnforcer(t *testing.T) {
	opt := ruledOptions(t, "access: {useDefaults: false, deny: ['**/.env']}")
	m := open(t, opt)
	ctx := operator(t.Context())
	kept := create(t, m, "kept", "ruled")
	var hung []string
	waited := true
	for try := 0; waited && try < 3; try++ { // the host may take longer for them than for another enforcer
		until(t, "there is an enforcer", func() bool { hung = enforcersOf(opt); return len(hung) == 2 })
		signalAll(hung, syscall.SIGSTOP)
		t.Cleanup(func() { signalAll(hung, syscall.SIGCONT) })
		free := create(t, m, "free", "default")
		must.Get(m.Sleep(ctx, free.ID))(t)
		must.Get(m.Wake(ctx, free.ID))(t)
		waited = !slices.Equal(enforcersOf(opt), hung)
		must.Do(t, m.Reap(ctx, free.ID))
	}
	expect.True(t, !waited, "a chat without rules waits for the enforcer")
	later := create(t, m, "later", "ruled")
	if now := enforcersOf(opt); slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(hung, pid) }) {
		t.Errorf("the enforcers are %v, were %v", now, hung)
	}
	for _, c := range []chat.Chat{kept, later} {
		if r := run(t, m, c.ID, "echo x >.env; cat .env"); r.Exit == 0 {
			t.Errorf("a denied file is read: %+v", r)
		}
	}
	st, err := m.Status(ctx)
	if must.Do(t, err); len(st.Failures) == 0 || !strings.Contains(st.Failures[0].Error, "opens that it decides wait") {
		t.Errorf("status has the failures %+v", st.Failures)
	}
	until(t, "the finding goes", func() bool {
		st, err := m.Status(ctx)
		return err == nil && !strings.Contains(strings.Join(st.Findings, "\n"), "the enforcer")
	})
}

// TestStartBesideStoppedEnforcer: chatd-root starts, and adopts chats, where the enforcer that it
// finds is stopped.
func TestStartBesideStoppedEnforcer(t *testing.T) {
	opt := ruledOptions(t, "access: {useDefaults: false, deny: ['**/.env']}")
	m := must.Get(openManager(t.Context(), opt))(t)
	kept, free := create(t, m, "kept", "ruled"), create(t, m, "free", "default")
	must.Do(t, m.Close())
	hung := enforcersOf(opt)
	signalAll(hung, syscall.SIGSTOP)
	t.Cleanup(func() { signalAll(hung, syscall.SIGCONT) })
	m = open(t, opt)
	for _, c := range []chat.Chat{kept, free} {
		if got, err := m.Get(operator(t.Context()), c.ID); err != nil || !got.Awake {
			t.Errorf("chat %s: awake %v, %v", c.ExternalID, got.Awake, err)
		}
	}
	if r := run(t, m, kept.ID, "echo x >.env; cat .env"); r.Exit == 0 {
		t.Errorf("a denied file is read: %+v", r)
	}
}
