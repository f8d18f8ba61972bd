package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

// unpacked writes a snapshot's files into a directory of its own.
func unpacked(t testing.TB, s *Snapshot, o Options) Options {
	t.Helper()
	o.Dir = t.TempDir()
	for _, f := range s.Files {
		b, err := io.ReadAll(io.NewSectionReader(f.From, 0, f.Size))
		if err != nil || int64(len(b)) != f.Size {
			t.Fatalf("%s: %d of %d bytes, %v", f.Name, len(b), f.Size, err)
		}
		if err := os.WriteFile(filepath.Join(o.Dir, f.Name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// TestSnapshotWhileWritten takes snapshots of a store that creates, reaps, audits and rotates as
// fast as it can, and of one that does not wait for copies, as a former chatd, with pauses: each
// opens, verifies, and has every chat that was committed before it was begun.
func TestSnapshotWhileWritten(t *testing.T) {
	for what, waits := range map[string]bool{"waits": true, "does not wait": false} {
		t.Run(what, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), AuditMax: 20_000, AuditKeep: 3}
			s := open(t, o)
			if _, _, err := s.EnsureBlock(chat.DefaultProfile); err != nil {
				t.Fatal(err)
			}
			next, tries := make(chan struct{}), 0
			w := writeOn(t, s, next)
			if waits {
				close(next)
			} else {
				if err := s.hold.close(); err != nil {
					t.Fatal(err)
				}
				s.hold = nil
				w.write(next, 3)
			}
			copyStep = func() {
				switch {
				case waits: // longer than some commits take, and shorter than others
					time.Sleep(time.Duration(tries%8) * time.Millisecond)
				case tries%2 == 0: // every second copy is overtaken
					w.write(next, 1)
				}
				tries++
			}
			defer func() { copyStep = func() {} }()
			for range 12 {
				checkSnapshot(t, o, w.made.Load())
			}
			w.end()
			t.Logf("%d chats were made meanwhile, %d copies", w.made.Load(), tries)
			if !waits && tries <= 12 {
				t.Error("no copy was overtaken by a commit")
			}
			verified(t, s)
		})
	}
}

// writing is a goroutine that changes a store until end.
type writing struct {
	made atomic.Int64
	end  func()
	done chan struct{}
}

// write makes n chats, each as the next of a writer that waits for it.
func (w *writing) write(next chan<- struct{}, n int64) {
	for before := w.made.Load(); w.made.Load() < before+n; {
		select {
		case next <- struct{}{}:
		case <-w.done: // it failed
			return
		}
	}
}

// writeOn creates chats, reaps each third, audits, and flushes now and then; each time that next is
// ready.
func writeOn(t *testing.T, s *Store, next <-chan struct{}) *writing {
	w, stop := &writing{done: make(chan struct{})}, make(chan struct{})
	w.end = sync.OnceFunc(func() { close(stop); <-w.done })
	t.Cleanup(w.end)
	go func() {
		defer close(w.done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-next:
			}
			spec := chat.Spec{ExternalID: fmt.Sprint(i)}
			r, _, err := s.Admit(spec, event("create", "intent"))
			err = errors.Join(err, s.Audit(event("run", "intent")))
			if i%3 == 0 {
				err = errors.Join(err, s.SetPhase(r.ID, chat.Reaping, event("reap", "intent")),
					s.Forget(r.ID, event("reap", "done")))
			}
			if i%10 == 9 {
				err = errors.Join(err, s.Flush())
			}
			if err != nil {
				t.Error(err)
				return
			}
			w.made.Store(int64(i))
		}
	}()
	return w
}

// checkSnapshot takes one of a store that had the first chats when it began.
func checkSnapshot(t *testing.T, o Options, first int64) {
	t.Helper()
	snap, err := TakeSnapshot(t.Context(), o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Open(unpacked(t, snap, o))
	if err != nil {
		t.Fatal(err)
	}
	verified(t, got)
	if snap.Chats != got.Len() || snap.Version != Version || snap.Given != got.Given() {
		t.Errorf("snapshot of %d chats, %d given, version %d: opened with %d, %d",
			snap.Chats, snap.Given, snap.Version, got.Len(), got.Given())
	}
	for i := range first {
		if _, err := got.Find("bridge", fmt.Sprint(i)); (err == nil) != (i%3 != 0) {
			t.Errorf("chat %d, which was there before: %v", i, err)
		}
	}
	if err := errors.Join(snap.Close(), got.Close()); err != nil {
		t.Error(err)
	}
}

// TestStoppedCopy: a process that stops amid a copy holds up one commit, and the next ones not.
func TestStoppedCopy(t *testing.T) {
	s := fresh(t)
	if err := s.Flush(); err != nil { // or the flush a second later might be the one that waits
		t.Fatal(err)
	}
	release, err := holdCommits(s.opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	ignore := func(next time.Time) (was time.Time) {
		s.writer.Lock()
		defer s.writer.Unlock()
		was, s.hold.ignore = s.hold.ignore, next
		return was
	}
	began := time.Now()
	admit(t, s, "a")
	if waited := time.Since(began); waited < holdMax || ignore(time.Now().Add(time.Hour)).IsZero() {
		t.Errorf("a commit waited %s for a copy, want %s", waited, holdMax)
	}
	admit(t, s, "b")
	if err := release(); err != nil {
		t.Fatal(err)
	}
	ignore(time.Time{})
	admit(t, s, "c")
	if !ignore(time.Time{}).IsZero() {
		t.Error("a commit waited in vain where no copy was made")
	}
}

// TestSnapshotRefusesABrokenState: what a restore would refuse is not backed up.
func TestSnapshotRefusesABrokenState(t *testing.T) {
	for what, c := range map[string]struct {
		name string
		edit func([]byte) []byte
		want string
	}{
		"another key":      {keyName, func(b []byte) []byte { return []byte(strings.Repeat("k", keySize)) }, "not the key of the database"},
		"a short key":      {keyName, func(b []byte) []byte { return b[:5] }, "want exactly 32 bytes"},
		"a changed line":   {auditName, func(b []byte) []byte { return []byte(strings.Replace(string(b), "block", "clock", 1)) }, "line 2: its prev is not the hash"},
		"a shorter log":    {auditName, func(b []byte) []byte { return b[:strings.LastIndex(string(b[:len(b)-1]), "\n")+1] }, "as written"},
		"a cut database":   {dbName, func(b []byte) []byte { return b[:20_000] }, "is damaged"},
		"an empty one":     {dbName, func([]byte) []byte { return nil }, "cannot "},
		"half of its meta": {dbName, func(b []byte) []byte { return b[:100] }, "is damaged"},
	} {
		s := fresh(t)
		for i := range 20 {
			admit(t, s, fmt.Sprint(i))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(s.opts.Dir, c.name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, c.edit(b), 0o600); err != nil {
			t.Fatal(err)
		}
		snap, err := TakeSnapshot(t.Context(), s.opts.Dir)
		if err == nil {
			err = errors.Join(errors.New("taken"), snap.Close())
		}
		if !strings.HasPrefix(err.Error(), "cannot copy the state in ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSnapshotOfABusyStore: where every copy is overtaken, the error says so, and the context ends
// it.
func TestSnapshotOfABusyStore(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := fresh(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	f, err := os.OpenFile(filepath.Join(s.opts.Dir, dbName), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		for i := byte(0); ; i++ {
			select {
			case <-stop:
				return
			default: // a byte of a meta page that its checksum leaves out
				if _, err := f.WriteAt([]byte{i}, 4000); err != nil {
					t.Error(err)
				}
			}
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("asked to end"))
	for { // until the writer meets a copy
		snap, tookErr := TakeSnapshot(ctx, s.opts.Dir)
		if err = tookErr; err != nil {
			break
		}
		snap.Close()
	}
	close(stop)
	wg.Wait()
	wantErr(t, "a busy store", err, chat.ErrBusy)
	if err == nil || !strings.Contains(err.Error(), "asked to end") ||
		!strings.Contains(err.Error(), "changed faster than it could be copied") {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "chatd-backup-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", os.TempDir(), left, err)
	}
}
