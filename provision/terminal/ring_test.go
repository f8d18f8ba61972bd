package terminal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRing appends pieces of any length, opens anew now and then, and compares what can be
// read, from any cursor, with the whole stream.
func TestRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	const size = 1000
	r, err := openRing(dir, size)
	must.Do(t, err)
	var all []byte
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		p := bytes.Repeat([]byte{byte(i)}, rnd.IntN(300))
		for j := range p {
			p[j] ^= byte(j)
		}
		must.Do(t, r.append(p))
		all = append(all, p...)
		if i%7 == 0 {
			r, err = openRing(dir, size)
			must.Do(t, err)
		}
		start, end, _ := r.bounds()
		if end != int64(len(all)) || end-start > size || int64(len(all)) > size && end-start < size/2 {
			t.Fatalf("after %d bytes %d to %d are kept", len(all), start, end)
		}
		cursor := rnd.Int64N(end + 1)
		buf := make([]byte, rnd.IntN(1200)+1)
		n, from, err := r.readAt(buf, cursor)
		must.Do(t, err)
		if from != max(start, cursor) || n != int(min(end-from, int64(len(buf)))) || !bytes.Equal(buf[:n], all[from:from+int64(n)]) {
			t.Fatalf("from cursor %d of %d to %d: %d bytes from %d", cursor, start, end, n, from)
		}
	}
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	var disk int64
	for _, e := range entries {
		fi, err := e.Info()
		must.Do(t, err)
		disk += fi.Size()
	}
	expect.True(t, len(entries) <= 2 && disk <= size,
		"%d files with %d bytes on the disk, want at most 2 with %d", len(entries), disk, size)
}

// TestOpenTidies opens after a crash between two acts, after a power cut, and with strangers.
func TestOpenTidies(t *testing.T) {
	dir := t.TempDir()
	write := func(from int64, n int) {
		must.Do(t, os.WriteFile(filepath.Join(dir, ringFile{from: from}.name()), make([]byte, n), 0o600))
	}
	write(0, 10) // a crash before the oldest was removed
	write(10, 10)
	write(20, 3)
	must.Do(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	must.Do(t, os.Mkdir(filepath.Join(dir, fmt.Sprintf("%020d", 500)), 0o700))
	r, err := openRing(dir, 20)
	must.Do(t, err)
	if start, end, _ := r.bounds(); start != 10 || end != 23 {
		t.Errorf("kept %d to %d, want 10 to 23", start, end)
	}
	write(10, 4) // the end of a file that was not synced
	r, err = openRing(dir, 20)
	must.Do(t, err)
	if start, end, _ := r.bounds(); start != 20 || end != 23 {
		t.Errorf("kept %d to %d, want 20 to 23", start, end)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

func TestEmptyAndChanged(t *testing.T) {
	r, err := openRing(filepath.Join(t.TempDir(), "none"), 100)
	must.Do(t, err)
	start, end, changed := r.bounds()
	if n, from, err := r.readAt(make([]byte, 10), 0); n != 0 || from != 0 || err != nil || start != 0 || end != 0 {
		t.Errorf("an empty ring has %d bytes from %d (%d to %d): %v", n, from, start, end, err)
	}
	select {
	case <-changed:
		t.Error("nothing has changed yet")
	default:
	}
	must.Do(t, r.append([]byte("x")))
	<-changed
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	r, err := openRing(dir, 100)
	must.Do(t, err)
	must.Do(t, r.append([]byte("x")))
	_, _, changed := r.bounds()
	must.Do(t, r.remove())
	<-changed
	expect.Is(t, expect.Err(r.readAt(make([]byte, 1), 0)), errRemoved, "reading gave")
	expect.Is(t, r.append([]byte("y")), errRemoved, "appending gave")
	expect.Is(t, expect.Err(os.Stat(dir)), os.ErrNotExist, "it is there again")
}
