package broker

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// reading is chatd-root with a run that reads; one caller at a time may write to it.
type reading struct {
	*apitest.Memory
	writing sync.Mutex
	// The run reads r; w is chatd-root's copy of the other end.
	r, w  *os.File
	over  context.Context
	typed atomic.Bool
}

func (r *reading) WriteStdin(
	ctx context.Context, _ chat.ID, _ string, _ bool, write verbs.Writes,
) error {
	if !r.writing.TryLock() {
		return chat.ErrBusy
	}
	defer r.writing.Unlock()
	fd, err := unix.Dup(int(r.w.Fd()))
	if err != nil {
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	err = write(within, stream.Input{W: os.NewFile(uintptr(fd), "stdin"), Framed: r.typed.Load()})
	if r.over.Err() != nil {
		return chat.ErrWrongPhase
	}
	return err
}

// serveReader serves a run that reads, which end ends.
func serveReader(t *testing.T) (d *rootEnd, run *reading, end func()) {
	t.Helper()
	mem := apitest.New()
	run = &reading{Memory: mem}
	var err error
	if run.r, run.w, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	run.over, end = context.WithCancel(context.Background())
	return serveRoot(t, run), run, end
}

func (r *reading) close(t *testing.T) {
	t.Helper()
	expect.NoError(t, errors.Join(r.r.Close(), r.w.Close()))
}

// TestStdinCrosses: the front writes to the run's own pipe, and its call then succeeds; no byte is
// in a packet. If the run ends the call, the writing ends, and the error says why.
func TestStdinCrosses(t *testing.T) {
	fds, routines := held(t)
	d, run, end := serveReader(t)
	for _, typed := range []bool{false, true} {
		run.typed.Store(typed)
		const size = 1 << 20
		got := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(run.r, make([]byte, size))
			got <- err
		}()
		err := d.WriteStdin(operator(t), "0123456789abcdef", "run-7", true,
			func(_ context.Context, to stream.Input) error {
				expect.True(t, to.Framed == typed, "framed: %t, want %t", to.Framed, typed)
				_, err := io.WriteString(to.W, strings.Repeat("x", size))
				return errors.Join(err, to.W.Close())
			})
		expect.NoError(t, errors.Join(err, <-got))
	}
	own := errors.New("nothing came")
	err := d.WriteStdin(operator(t), "0123456789abcdef", "run-7", true,
		func(_ context.Context, to stream.Input) error { return errors.Join(own, to.W.Close()) })
	expect.True(t, errors.Is(err, own), "why nothing was written: %v", err)
	err = d.WriteStdin(operator(t), "0123456789abcdef", "run-7", true,
		func(ctx context.Context, to stream.Input) error {
			end()
			<-ctx.Done()
			return errors.Join(ctx.Err(), to.W.Close())
		})
	expect.True(t, errors.Is(err, chat.ErrWrongPhase) && !errors.Is(err, context.Canceled),
		"the run has ended: %v", err)
	expect.NoError(t, d.end(t))
	run.close(t)
	leaksNothing(t, fds, routines)
}

// TestHostileStdin: whatever a front does with the standard input of a run, the call leaves nothing
// in chatd-root, and the next caller may write.
func TestHostileStdin(t *testing.T) {
	const ask = `{"verb":"write_stdin","caller":{"name":"root","role":"operator"},` +
		`"chat":"0123456789abcdef","args":{"run":"run-7"}}`
	sends := func(k kind, text string) func(l *link) error {
		return func(l *link) error { return errors.Join(l.send(k, []byte(text)), l.send(end, nil)) }
	}
	for name, does := range map[string]func(l *link) error{
		"bytes":             func(l *link) error { return l.send('d', []byte("x")) },
		"an empty packet":   sends('d', ""),
		"broken":            func(l *link) error { return l.send(broken, nil) },
		"another kind":      func(l *link) error { return l.send(stdin, nil) },
		"ends twice":        sends(end, ""),
		"a tool and an end": sends(toolSays, `{"n":0,"report":{}}`),
		"bytes and an end":  sends('d', "x"),
		"hangs up":          (*link).hangUp,
		"dies":              (*link).close,
		"a hundred files":   func(l *link) error { return l.sendFDs(end, nil, make([]int, 100)...) },
	} {
		t.Run(name, func(t *testing.T) {
			fds, routines := held(t)
			d, run, over := serveReader(t)
			l, err := d.open()
			must.Do(t, err)
			must.Do(t, l.send(requestEnd, []byte(ask)))
			must.Do(t, l.hearBy(time.Now().Add(time.Minute)))
			var given []int // kept by the front
			must.Do(t, l.recvFDs(func(k kind, _ []byte, fds []int) error {
				if given = fds; k != stdin || len(fds) != 1 {
					t.Errorf("got %q with %d descriptors", k, len(fds))
				}
				return nil
			}))
			// The call may have ended before all is sent.
			err = does(l)
			if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
				t.Fatal(err)
			}
			for range 6000 { // the lock is free again
				err = d.WriteStdin(operator(t), "0123456789abcdef", "run-7", false,
					func(_ context.Context, to stream.Input) error { return to.W.Close() })
				if !errors.Is(err, chat.ErrBusy) {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			expect.True(t, err == nil, "the next call: %v", err)
			_ = l.close()
			expect.NoError(t, errors.Join(d.end(t), sys.CloseAll(given)))
			over()
			run.close(t)
			leaksNothing(t, fds, routines)
		})
	}
}

// TestStdinThatNeverEnds: a front that never reports the end of the writing holds a run's standard
// input until the run ends, and no longer.
func TestStdinThatNeverEnds(t *testing.T) {
	fds, routines := held(t)
	d, run, over := serveReader(t)
	last, words := d.raw(t, func(l *link) {
		m := `{"verb":"write_stdin","caller":{"name":"root","role":"operator"},` +
			`"chat":"0123456789abcdef","args":{"run":"run-7"}}`
		must.Do(t, l.send(requestEnd, []byte(m)))
		must.Do(t, l.hearBy(time.Now().Add(time.Minute)))
		must.Do(t, l.recvFDs(func(_ kind, _ []byte, fds []int) error { return sys.CloseAll(fds) }))
		over()
	})
	expect.True(t, last == failed && strings.Contains(words, "wrong phase"), "answered %q %s", last, words)
	expect.NoError(t, d.end(t))
	run.close(t)
	leaksNothing(t, fds, routines)
}
