package provision

import (
	"os"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
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
	stdout, stderr := newCapture(chat.DefaultOutputMax), newCapture(chat.DefaultOutputMax)
	reads := stdio.read(&stdout, &stderr)
	if err := stdio.endReads(true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reads:
	case <-time.After(30 * time.Second):
		t.Fatal("the answer waits for a stream that somebody holds")
	}
	stdio.close()
	if stdout.text() != "printed" || stderr.text() != "" {
		t.Errorf("stdout %q, stderr %q", stdout.text(), stderr.text())
	}
}

func TestParseProcStat(t *testing.T) {
	for in, want := range map[string]procStat{
		"7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 0":        {'S', 4194304, 4242},
		"7 (a) Z 1 (b) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4243 0": {'S', 4194304, 4243},
	} {
		if got, err := parseProcStat(in); err != nil || got != want {
			t.Errorf("parseProcStat(%q) = %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "7", "7 (sh)", "7 (sh) S", "7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 x 0", "7 (sh) S 1 7 7 0 -1 x 1 0 0 0 0 0 0 0 20 0 1 0 7 0"} {
		if _, err := parseProcStat(in); err == nil {
			t.Errorf("parseProcStat(%q) gave no error", in)
		}
	}
}

func FuzzParseProcStat(f *testing.F) {
	f.Add("7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 0")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseProcStat(s) })
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
