package session

import (
	"os"
	"testing"
	"time"

	"github.com/chatd/chatd/test/must"
)

// TestHeldStreams keeps a write end open, as a run does that handed its stdout to
// the session: the answer must come all the same, with what was printed.
func TestHeldStreams(t *testing.T) {
	stdio := must.Get(NewStdio(uint32(os.Getuid()), []byte("in"), false))(t)
	held := stdio.OutW
	stdio.OutW = nil // not closed with the child's ends
	defer held.Close()
	must.Get(held.WriteString("printed"))(t)
	stdio.CloseChildEnds()
	kept := stdio.read(maxOwn)
	must.Do(t, stdio.endReads(true))
	select {
	case <-kept.done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the answer waits for a stream that somebody holds")
	}
	stdio.Close()
	var out CommandResult
	if kept.into(&out); string(out.Stdout) != "printed" || out.Stderr != "" {
		t.Errorf("stdout %q, stderr %q", out.Stdout, out.Stderr)
	}
}
