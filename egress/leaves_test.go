package egress

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSilentSigner: while chatd-root signs nothing, certificates that are kept are shown, those that
// wait for theirs end with their connections, and one that has no such end gives up.
func TestSilentSigner(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	l := &w.s.terminator.leaves
	must.Get(l.get(t.Context(), w.n, apiHost))(t)
	silent := make(chan struct{})
	t.Cleanup(func() { close(silent) })
	w.root.mu.Lock()
	w.root.silent = silent
	w.root.mu.Unlock()
	w.s.root.timeout = time.Minute
	ctx, leave := context.WithCancelCause(t.Context())
	left := errors.New("the client left")
	ended := make(chan error, 2)
	for range 2 { // one asks, one waits for its turn
		go func() {
			_, err := l.get(ctx, w.n, "new.example.org")
			ended <- err
		}()
	}
	waitUntil(t, func() bool { return len(l.making) == 1 })
	expect.Is(t, expect.Err(l.get(t.Context(), w.n, apiHost)), nil, "one that is kept")
	select {
	case err := <-ended:
		t.Errorf("one that waits: %v", err)
	default:
	}
	leave(left)
	for range 2 {
		expect.True(t, <-ended != nil, "a certificate that nobody signed")
	}
	w.s.root.timeout = 50 * time.Millisecond
	expect.Is(t, expect.Err(l.get(t.Context(), w.n, "new.example.org")), context.DeadlineExceeded,
		"one that waits on")
}
