package console

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/ring"
)

// TestLastOutputIsKept: what is in the fifo when a session has ended is kept, however late chatd
// comes to read it.
func TestLastOutputIsKept(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "log")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // a session of a chatd that ends still writes
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.WriteString("bye"); err != nil {
		t.Fatal(err)
	}
	r, err := ring.Open(filepath.Join(t.TempDir(), "ring"), 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	ctx, ended := context.WithCancel(t.Context())
	ended()
	l.Keep(ctx, r, Keeping{Alive: func() bool { return true }, Printed: func() {}})
	<-l.over
	buf := make([]byte, 8)
	if n, _, err := r.ReadAt(buf, 0); err != nil || string(buf[:n]) != "bye" {
		t.Errorf("%q is kept, %v", buf[:n], err)
	}
}
