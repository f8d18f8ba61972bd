package roottest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStartsAreLimited: the limiter bounds simultaneous starts. One that does not come to its
// prompt is counted no more after a while, so that it cannot keep others asleep.
func TestStartsAreLimited(t *testing.T) {
	opt := options(t)
	opt.Starts = 1
	m := open(t, opt)
	ctx := operator(t.Context())
	slow, other := asleep(t, m, "slow to start"), asleep(t, m, "waits for its place")
	must.Do(t, os.WriteFile(filepath.Join(slow.Home, ".bashrc"), []byte("touch ~/begun; until [ -e ~/go ]; do sleep 0.1; done\n"), 0o644))
	must.Do(t, os.Chown(filepath.Join(slow.Home, ".bashrc"), int(slow.UID), int(slow.UID)))
	woken := make(chan error, 1)
	began := time.Now()
	go func() { woken <- second(m.Wake(ctx, slow.ID)) }()
	waitFile(t, filepath.Join(slow.Home, "begun"))
	r, err := m.Run(ctx, other.ID, chat.RunSpec{Command: "true"})
	expect.True(t, err == nil && r.Exit == 0, "the chat beside it: %+v, %v", r, err)
	if waited := time.Since(began); waited < 3*time.Second {
		t.Errorf("the other chat was woken after %s, while the only place was taken", waited)
	}
	select {
	case err := <-woken:
		t.Errorf("the slow chat is awake before the other: %v", err)
	default:
	}
	must.Do(t, os.WriteFile(filepath.Join(slow.Home, "go"), nil, 0o644))
	must.Do(t, <-woken)
}
