package provision

import (
	"os"
	"testing"
	"time"
)

// TestHeldStreams keeps a write end open, as a run does that handed its stdout to
// the session: the answer must come all the same, with what was printed.
func TestHeldStreams(t *testing.T) {
	stdio, err := newRunStdio(uint32(os.Getuid()), []byte("in"), false)
	if err != nil {
		t.Fatal(err)
	}
	held := stdio.outW
	stdio.outW = nil // not closed with the child's ends
	defer held.Close()
	if _, err := held.WriteString("printed"); err != nil {
		t.Fatal(err)
	}
	stdio.closeChildEnds()
	var out entered
	reads := stdio.read(&out, ownOutput)
	if err := stdio.endReads(true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reads:
	case <-time.After(30 * time.Second):
		t.Fatal("the answer waits for a stream that somebody holds")
	}
	stdio.close()
	if out.stdout.Text() != "printed" || out.stderr.Text() != "" {
		t.Errorf("stdout %q, stderr %q", out.stdout.Text(), out.stderr.Text())
	}
}

func TestLocks(t *testing.T) {
	var k keyedLocks
	unlock, err := k.lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := k.lock(t.Context(), "b")
	if err != nil {
		t.Fatal("two chats wait for each other")
	}
	other()
	got := make(chan struct{})
	go func() {
		if second, err := k.lock(t.Context(), "a"); err == nil {
			close(got)
			second()
		}
	}()
	select {
	case <-got:
		t.Error("one lock was held twice")
	case <-time.After(20 * time.Millisecond):
	}
	unlock()
	<-got
	for range 60_000 { // the last holder may still be on its way out
		k.mu.Lock()
		n := len(k.locks)
		k.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("locks of nobody are kept")
}
