package roottest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// content reads a file over the API.
func (d *daemon) content(t testing.TB, id chat.ID, name string) string {
	t.Helper()
	var b strings.Builder
	must.Get(d.ReadFile(t.Context(), id, filewire.ReadFile{Path: name, Stream: true}, func(filewire.Answer) io.Writer { return &b }))(t)
	return b.String()
}

// chatsOf are a chat that is awake and one that is asleep.
func (d *daemon) chatsOf(t testing.TB, name string) map[string]chat.Chat {
	t.Helper()
	out := map[string]chat.Chat{}
	for _, phase := range []string{"awake", "asleep"} {
		awake := phase == "awake"
		c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: name + " " + phase, Awake: &awake}))(t)
		out[phase] = c
	}
	return out
}

// TestAppendsOverTheAPI: 100 callers append at the same time, and nothing is lost.
func TestAppendsOverTheAPI(t *testing.T) {
	d := startDaemon(t, options(t), "")
	for phase, c := range d.chatsOf(t, "append") {
		t.Run(phase, func(t *testing.T) {
			var all errgroup
			var want []string
			for i := range 100 {
				line := fmt.Sprintf("caller %03d %s\n", i, strings.Repeat("x", i))
				want = append(want, line)
				all.Go(func() error {
					if i%2 == 0 {
						return expect.Err(d.AppendFile(t.Context(), c.ID, filewire.WriteFile{Path: "log", Stream: true}, strings.NewReader(line)))
					}
					return expect.Err(d.AppendFile(t.Context(), c.ID, filewire.WriteFile{Path: "log", Content: &line}, nil))
				})
			}
			must.Do(t, all.Wait())
			got := slices.Sorted(strings.Lines(d.content(t, c.ID, "log")))
			expect.True(t, slices.Equal(got, want), "%d lines came of %d", len(got), len(want))
			expect.Equal(t, must.Get(d.Get(t.Context(), c.ID))(t).Awake, (phase == "awake"), "awake")
			must.Do(t, d.Reap(t.Context(), c.ID))
		})
	}
}

// TestBytesOverTheAPI: 1 GiB of any bytes, as much as file_max allows, through the daemon's
// process and the chat's limits, out again as a stream and by read_file's last page, and
// the daemon has not grown by them. Asleep it is less, for the time's sake.
func TestBytesOverTheAPI(t *testing.T) {
	sizes := map[string]int64{"awake": 1 << 30, "asleep": 64 << 20}
	needsRoom(t, "/srv", 2<<30)
	d := startDaemon(t, options(t), "")
	for phase, c := range d.chatsOf(t, "bytes") {
		t.Run(phase, func(t *testing.T) {
			defer func() { must.Do(t, d.Reap(t.Context(), c.ID)) }()
			size := sizes[phase]
			in, err := d.WriteFile(t.Context(), c.ID, filewire.WriteFile{Path: "big", Stream: true, Hash: true}, io.LimitReader(rand.NewChaCha8([32]byte{1}), size))
			must.Do(t, err)
			var n counter
			out, err := d.ReadFile(t.Context(), c.ID, filewire.ReadFile{Path: "big", Stream: true, Hash: true}, func(filewire.Answer) io.Writer { return &n })
			expect.True(t, err == nil && int64(n) == size && out.SHA256 == in.SHA256 && in.Size == size,
				"in %+v, out %+v, %d bytes, %v", in, out, n, err)
			n = 0
			page, err := d.ReadFile(t.Context(), c.ID, filewire.ReadFile{Path: "big", Offset: size - 10}, func(filewire.Answer) io.Writer { return &n })
			expect.True(t, err == nil && page.Size == size && !page.Truncated,
				"the last page is %+v of %d bytes, %v", page, n, err)
		})
	}
	had := highWater(d.cmd.Process.Pid)
	expect.True(t, had > 0 && had <= 128<<20, "the daemon had %d bytes at most", had)
}

// halfSent is a body of which a part was sent when it returns; finish ends it.
func halfSent(t testing.TB, d *daemon, c chat.Chat, name string) (finish func() error) {
	t.Helper()
	r, w := io.Pipe()
	done := going(func() error {
		_, err := d.WriteFile(context.Background(), c.ID, filewire.WriteFile{Path: name, Stream: true}, r)
		_ = r.CloseWithError(errors.New("the call is over"))
		return err
	})
	if _, err := w.Write([]byte(strings.Repeat("new", 100_000))); err != nil {
		t.Fatalf("%v: %v", err, <-done)
	}
	until(t, "the write begins", func() bool { found, _ := filepath.Glob(filepath.Join(c.Home, ".tmp-*")); return len(found) > 0 })
	return func() error { _ = w.Close(); return <-done }
}

// TestKillAmidWrite: kill -9 of chatd while a file is written leaves the old content
// or the new, no process of a chat that is asleep, and nothing that the next write
// does not take away.
func TestKillAmidWrite(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	chats := d.chatsOf(t, "killed")
	write := func(id chat.ID, text string) error {
		return expect.Err(d.WriteFile(t.Context(), id, filewire.WriteFile{Path: "f", Content: &text}, nil))
	}
	for phase, c := range chats {
		must.Do(t, write(c.ID, "old"))
		finish := halfSent(t, d, c, "f")
		d.kill()
		expect.True(t, finish() != nil, "%s: the caller was told that all is well", phase)
		d = startDaemon(t, opt, "")
		if text := d.content(t, c.ID, "f"); text != "old" {
			t.Errorf("%s: %.20q", phase, text)
		}
	}
	for i := range 6 {
		for phase, c := range chats {
			must.Do(t, write(c.ID, "old"))
			done := make(chan struct{})
			go func() { defer close(done); _ = write(c.ID, strings.Repeat("new", 100_000)) }()
			time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond)
			d.kill()
			<-done
			d = startDaemon(t, opt, "")
			if text := d.content(t, c.ID, "f"); text != "old" && text != strings.Repeat("new", 100_000) {
				t.Errorf("%s, round %d: %d bytes, %.20q", phase, i, len(text), text)
			}
		}
	}
	for phase, c := range chats {
		must.Do(t, write(c.ID, "last"))
		left, _ := filepath.Glob(filepath.Join(c.Home, ".tmp-*"))
		expect.True(t, len(left) == 0, "%s: left %v", phase, left)
		now := must.Get(d.Get(t.Context(), c.ID))(t)
		if now.Awake != (phase == "awake") || phase == "asleep" && len(pidsOf(c.UID)) > 0 {
			t.Errorf("%s: awake is %v, processes %v", phase, now.Awake, pidsOf(c.UID))
		}
		must.Do(t, d.Reap(t.Context(), c.ID))
		gone(t, opt, c)
	}
}

// TestReapAmidWrite: reap does not wait for a caller that sends nothing, and removes the old
// content with the rest. A caller that goes away ends the write too.
func TestReapAmidWrite(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	for phase, c := range d.chatsOf(t, "reaped") {
		finish := halfSent(t, d, c, "f")
		must.Do(t, within(t, phase, func() error { return d.Reap(t.Context(), c.ID) }))
		expect.True(t, finish() != nil, "%s: the caller was told that all is well", phase)
		gone(t, opt, c)
	}
	for phase, c := range d.chatsOf(t, "left") {
		r, w := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		done := going(func() error {
			return expect.Err(d.WriteFile(ctx, c.ID, filewire.WriteFile{Path: "f", Stream: true}, r))
		})
		must.Get(w.Write(make([]byte, 100_000)))(t)
		cancel()
		_ = w.CloseWithError(context.Canceled)
		expect.True(t, <-done != nil, "%s: a caller who left was told that all is well", phase)
		must.Do(t, within(t, phase, func() error { return expect.Err(d.Wake(t.Context(), c.ID)) }))
		var left []string
		comes(func() bool { // the daemon sees a moment later that the caller left
			left, _ = filepath.Glob(filepath.Join(c.Home, ".tmp-*"))
			return len(left) == 0
		})
		_, err := os.Stat(filepath.Join(c.Home, "f"))
		expect.True(t, err != nil && len(left) == 0, "%s: left %v, the file: %v", phase, left, err)
		must.Do(t, d.Reap(t.Context(), c.ID))
		gone(t, opt, c)
	}
}

// TestReapEndsOneShotSessions: a caller that never ends its file cannot delay the reap of a chat, and is
// told why its call ended.
func TestReapEndsOneShotSessions(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := asleep(t, m, "one-shot session without end")
	r, w := io.Pipe()
	defer w.Close()
	done := going(func() error {
		return expect.Err(m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: "f", Stream: true}, r))
	})
	must.Get(w.Write([]byte("half")))(t)
	must.Do(t, within(t, "reap", func() error { return m.Reap(ctx, c.ID) }))
	expect.Says(t, <-done, chat.ErrWrongPhase, "reaped", "the caller is told")
	gone(t, opt, c)
}

// TestOneShotSessionsAreBounded: a one-shot session counts for max_awake, a wake waits for its end,
// and reconcile does not wait for it.
func TestOneShotSessionsAreBounded(t *testing.T) {
	opt := options(t)
	opt.MaxAwake = 1
	m := open(t, opt)
	ctx := operator(t.Context())
	a, b := asleep(t, m, "one-shot session a"), asleep(t, m, "one-shot session b")
	r, w := io.Pipe()
	done := going(func() error {
		return expect.Err(m.WriteFile(ctx, a.ID, filewire.WriteFile{Path: "f", Stream: true}, r))
	})
	must.Get(w.Write([]byte("half")))(t)
	wakes := going(func() error { return expect.Err(m.Wake(ctx, b.ID)) }) // each waits a while for a place
	expect.Is(t, expect.Err(get(t, m, b.ID, "f")), chat.ErrBusy, "a second one-shot session")
	expect.Is(t, <-wakes, chat.ErrBusy, "a wake beside a one-shot session")
	must.Do(t, within(t, "reconcile", func() error { m.Reconcile(ctx); return nil }))
	woken := going(func() error { return expect.Err(m.Wake(ctx, a.ID)) })
	must.Do(t, w.Close())
	must.Do(t, <-done)
	must.Do(t, <-woken)
	expect.Equal(t, must.Get(get(t, m, a.ID, "f"))(t), "half", "")
	must.Get(m.Sleep(ctx, a.ID))(t)
	expect.Is(t, expect.Err(get(t, m, b.ID, "f")), chat.ErrNotFound, "afterwards")
}

// TestFileMaxInAChat: what is too large is refused, in and out, and nothing is left.
func TestFileMaxInAChat(t *testing.T) {
	opt := options(t)
	opt.FileMax = 1 << 20
	m := open(t, opt)
	inBothPhases(t, m, func(t *testing.T, c chat.Chat) {
		ctx := operator(t.Context())
		write := func(n int64) error {
			return expect.Err(m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: "f", Stream: true}, io.LimitReader(rand.NewChaCha8([32]byte{}), n)))
		}
		expect.Is(t, write(1<<20+1), chat.ErrInvalid, "too much")
		left, _ := os.ReadDir(c.Home)
		expect.True(t, !slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() == "f" || strings.HasPrefix(e.Name(), ".tmp-") }), "left %v", left)
		must.Do(t, write(1<<20))
		must.Do(t, os.WriteFile(filepath.Join(c.Home, "g"), make([]byte, 1<<20+1), 0o644))
		var n counter
		read := func(a filewire.ReadFile) error {
			return expect.Err(m.ReadFile(ctx, c.ID, a, func(filewire.Answer) io.Writer { return &n }))
		}
		if err := read(filewire.ReadFile{Path: "g", Stream: true}); !errors.Is(err, chat.ErrInvalid) || n > 0 {
			t.Errorf("all of what is too large: %d bytes, %v", n, err)
		}
		err := read(filewire.ReadFile{Path: "g", Stream: true, Offset: 1})
		expect.True(t, err == nil && n == 1<<20, "a part of it: %d bytes, %v", n, err)
	})
}

// TestPatternsBehindLinks: a rule about a name that is a link is about what it leads to, to
// explain and to each tool, awake and asleep, with many other rules beside it.
func TestPatternsBehindLinks(t *testing.T) {
	rules := "access:\n  useDefaults: false\n  rules:\n    - {deny: ~/l/x, ops: [read, write, edit]}\n"
	for i := range 900 {
		rules += fmt.Sprintf("    - {deny: ~/other/%d, ops: [read]}\n", i)
	}
	m := open(t, ruledOptions(t, rules))
	c := sleeper(t, m, "behind")
	for _, name := range []string{"d/x", "d/y", "away/x"} {
		file := putFile(t, c, name, "text")
		must.Do(t, os.Chown(file, int(c.UID), int(c.UID)))
	}
	must.Do(t, os.Symlink("d", filepath.Join(c.Home, "l")))
	text := "more"
	begin := func(filewire.Answer) io.Writer { return io.Discard }
	for _, awake := range []bool{false, true} {
		if awake {
			wake(t, m, c.ID)
		}
		for path, denied := range map[string]bool{"d/x": true, "l/x": true, "d/../l/x": true, "d/y": false, "l/y": false, "away/x": false} {
			acts := map[string]error{
				"read":   errorOf(m.ReadFile(operator(t.Context()), c.ID, filewire.ReadFile{Path: path}, begin)),
				"append": errorOf(m.AppendFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: path, Content: &text}, nil)),
				"write":  errorOf(m.WriteFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: path, Content: &text}, nil)),
				"edit":   errorOf(m.EditFile(operator(t.Context()), c.ID, filewire.EditFile{Path: path, OldText: "more", NewText: "more"})),
			}
			for act, err := range acts {
				var d *filewire.Denial
				if denied != errors.As(err, &d) || denied && d.Place != "rules.yaml:4" {
					t.Errorf("awake %t: %s of %s: %v", awake, act, path, err)
				}
			}
			got, err := m.Explain(operator(t.Context()), c.ID, chat.Question{Path: path, Op: "read"})
			expect.True(t, err == nil && (got.Verdict == "deny") == denied,
				"awake %t: explain says of %s: %+v, %v", awake, path, got, err)
		}
		command := "cat " + strings.Repeat("y ", 300) + "d/x"
		got, err := front(t, m).Explain(operator(t.Context()), c.ID, chat.Question{Command: command})
		expect.True(t, err == nil && got.Verdict == "allow" && len(got.Paths) != 0,
			"awake %t: explain of a long command: %+v, %v", awake, got.Verdict, err)
	}
}

func errorOf[T any](_ T, err error) error { return err }
