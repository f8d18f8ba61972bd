package roottest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// toolsInTurn calls each file tool once, and gives report what it says.
func toolsInTurn(ctx context.Context, m *manager, id chat.ID, report func(tool string, err error)) {
	text := "one line\n"
	all := bytes.Repeat([]byte("many lines\n"), 20_000)
	nowhere := func(filewire.Answer) io.Writer { return io.Discard }
	report("write_file", expect.Err(m.WriteFile(ctx, id, filewire.WriteFile{Path: "f", Content: &text}, nil)))
	report("a stream in", expect.Err(m.WriteFile(ctx, id, filewire.WriteFile{Path: "g", Stream: true}, bytes.NewReader(all))))
	report("append_file", expect.Err(m.AppendFile(ctx, id, filewire.WriteFile{Path: "h", Content: &text}, nil)))
	report("edit_file", expect.Err(m.EditFile(ctx, id, filewire.EditFile{Path: "f", OldText: "one line", NewText: "one line more"})))
	report("read_file", expect.Err(m.ReadFile(ctx, id, filewire.ReadFile{Path: "f"}, nowhere)))
	report("a stream out", expect.Err(m.ReadFile(ctx, id, filewire.ReadFile{Path: "g", Stream: true}, nowhere)))
	report("list_dir", expect.Err(m.ListDir(ctx, id, filewire.ListDir{}, nowhere)))
}

// TestFilesMeetSleepAndReap: a file tool that meets the end of a session, a wake or a reap does
// what it was asked, or says that the chat was in the way of it; it has no internal error.
func TestFilesMeetSleepAndReap(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	for round := range 4 {
		c := create(t, m, fmt.Sprint("meets ", round), "default")
		reaped := make(chan struct{})
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for {
					select {
					case <-reaped:
						return
					default:
					}
					toolsInTurn(ctx, m, c.ID, func(tool string, err error) {
						switch kind := client.Kind(err); {
						case err == nil, kind == "wrong_phase", kind == "not_found", tool == "edit_file" && kind == "invalid":
						default:
							t.Errorf("%s: %s: %v", tool, kind, err)
						}
					})
				}
			})
		}
		for range 4 {
			time.Sleep(time.Duration(50+round*70) * time.Millisecond)
			must.Get(m.Sleep(ctx, c.ID))(t)
			time.Sleep(time.Duration(round*40) * time.Millisecond)
			must.Get(m.Wake(ctx, c.ID))(t)
		}
		must.Do(t, m.Reap(ctx, c.ID))
		close(reaped)
		callers.Wait()
		gone(t, opt, c)
	}
}

// TestCreateWhoseCallerLeaves: whatever step the caller leaves at, it is that which is said, and
// nothing is left of the chat.
func TestCreateWhoseCallerLeaves(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	began := time.Now()
	m2 := must.First(m.Create(operator(t.Context()), chat.Spec{ExternalID: "how long it takes"}))(t)
	took := time.Since(began)
	must.Do(t, m.Reap(operator(t.Context()), m2.ID))
	const steps = 24
	cut := 0
	for i := range steps {
		ctx, cancel := context.WithCancel(operator(t.Context()))
		stop := time.AfterFunc(took*time.Duration(i)/steps, cancel)
		c, _, err := m.Create(ctx, chat.Spec{ExternalID: fmt.Sprint("left ", i)})
		stop.Stop()
		cancel()
		switch {
		case err == nil:
			must.Do(t, m.Reap(operator(t.Context()), c.ID))
		case !errors.Is(err, context.Canceled):
			t.Errorf("left at %d of %d: %v", i, steps, err)
		default:
			cut++
		}
	}
	expect.True(t, cut != 0, "no create was cut short")
}
