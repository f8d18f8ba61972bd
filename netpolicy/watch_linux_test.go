package netpolicy

import (
	"context"
	"fmt"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestWatch changes the rules as a stranger would, and not at all.
func TestWatch(t *testing.T) {
	needsRoot(t)
	ctx, stop := context.WithCancel(t.Context())
	var seen, heard atomic.Int32
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		close(ready)
		ended <- Watch(ctx, func() { heard.Add(1) }, func(context.Context) { seen.Add(1) })
	}()
	<-ready
	tables := 0
	awaitSeen := func(want int32) {
		t.Helper()
		// Until the watch has begun, a change may pass unseen: change again.
		for end := time.Now().Add(2 * time.Minute); seen.Load() < want; time.Sleep(200 * time.Millisecond) {
			tables++
			must.Run(t, exec.Command("nft", "add", "table", "inet", fmt.Sprint("stranger", tables)))
			must.True(t, !time.Now().After(end), "none of %d changes was seen", tables)
		}
	}
	awaitSeen(1)
	calm := seen.Load()
	for end := time.Now().Add(2 * time.Minute); ; calm = seen.Load() { // a busy host tells of the last change late
		if time.Sleep(2 * pause); seen.Load() == calm {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("changes are seen while nobody changes anything, %d by now", seen.Load())
		}
	}
	awaitSeen(calm + 1)
	stop()
	expect.Is(t, <-ended, nil, "Watch ended with")
	if heard.Load() < 2 {
		t.Errorf("heard of %d changes, and looked %d times", heard.Load(), seen.Load())
	}
}
