package runs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// open are the tools of chats in memory, behind the broker, and a chat.
func open(t *testing.T, check filewire.Check) (*Tools, *apitest.Memory, chat.ID) {
	t.Helper()
	mem := apitest.New()
	mem.Deny = check
	root, front, err := broker.Pair()
	must.Do(t, err)
	s := must.Get(broker.NewServer(root, broker.ServerOptions{
		Root: mem,
		Log:  slog.New(slog.DiscardHandler),
	}))(t)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		expect.NoError(t, errors.Join(s.Close(), <-ended, s.Wait(time.Minute)))
	})
	c := must.Get(broker.NewClient(front))(t)
	t.Cleanup(func() { runtime.KeepAlive(c) }) // its end would end the calls
	return NewTools(c), mem, newChat(t, mem, "a")
}

func newChat(t *testing.T, mem *apitest.Memory, name string) chat.ID {
	t.Helper()
	c := must.First(mem.Create(operator(t), chat.Spec{ExternalID: name}))(t)
	return c.ID
}

func operator(t *testing.T) context.Context {
	return chat.WithCaller(t.Context(), chat.Caller{Name: "root", Role: chat.RoleOperator})
}

// to is where content goes.
func to(b *bytes.Buffer) filewire.Begin {
	b.Reset()
	return func(filewire.Answer) io.Writer { return b }
}

// TestTools: each tool does through the front what it is asked to, with content from a request and
// from a stream.
func TestTools(t *testing.T) {
	c, _, id := open(t, nil)
	ctx := operator(t)
	long := strings.Repeat("x", 3<<20)
	var got bytes.Buffer
	text := "one\n"
	a, err := c.WriteFile(ctx, id, filewire.WriteFile{Path: "d/f", Content: &text}, nil)
	expect.True(t, err == nil && a.Created && a.Message == "File written: d/f",
		"write_file: %+v, %v", a, err)
	a, err = c.AppendFile(ctx, id, filewire.WriteFile{Path: "d/f", Content: &text}, nil)
	expect.True(t, err == nil && a.Size == 8, "append_file: %+v, %v", a, err)
	_, err = c.ListDir(ctx, id, filewire.ListDir{Path: "d"}, to(&got))
	expect.True(t, err == nil && got.String() == "FILE: f\n", "list_dir: %q, %v", got.String(), err)
	a, err = c.WriteFile(ctx, id, filewire.WriteFile{Path: "g", Stream: true}, strings.NewReader(long))
	expect.True(t, err == nil && a.Bytes == int64(len(long)), "a stream: %+v, %v", a, err)
	_, err = c.EditFile(ctx, id, filewire.EditFile{Path: "g", OldText: long[:1<<19], NewText: "y"})
	expect.True(t, errors.Is(err, chat.ErrInvalid), "edit_file of what is there often: %v", err)
	_, err = c.ReadFile(ctx, id, filewire.ReadFile{Path: "g", Stream: true}, to(&got))
	if err != nil || got.String() != long {
		t.Errorf("read_file: %d bytes, %v", got.Len(), err)
	}
	if _, err = c.ReadFile(ctx, id, filewire.ReadFile{}, to(&got)); !errors.Is(err, chat.ErrInvalid) {
		t.Errorf("read_file of no name: %v", err)
	}
	_, err = c.WriteFile(ctx, "0000000000000000", filewire.WriteFile{Path: "g", Content: &text}, nil)
	expect.True(t, errors.Is(err, chat.ErrNotFound), "a chat that is not there: %v", err)
}

// TestDenied: what chatd-root replies to the question of a tool ends the call, with its rule.
func TestDenied(t *testing.T) {
	c, mem, id := open(t, func(op filewire.Op, name string) *filewire.Denial {
		if strings.HasSuffix(name, "/.env") {
			return &filewire.Denial{Op: op, Path: name, Rule: ".env", Place: "rules.yaml:7"}
		}
		return nil
	})
	ctx := operator(t)
	var got bytes.Buffer
	text := "secret"
	write := filewire.WriteFile{Path: ".env", Content: &text}
	mem.Put(id, ".env", text)
	for what, call := range map[string]func() error{
		"read": func() error {
			_, err := c.ReadFile(ctx, id, filewire.ReadFile{Path: ".env"}, to(&got))
			return err
		},
		"write": func() error {
			_, err := c.WriteFile(ctx, id, write, nil)
			return err
		},
	} {
		var d *filewire.Denial
		if err := call(); !errors.As(err, &d) || d.Place != "rules.yaml:7" || got.Len() > 0 {
			t.Errorf("%s: %v, %q", what, err, got.String())
		}
	}
}

// TestBounded: a file that the bound would cut is refused before its content, unless a length is
// asked for.
func TestBounded(t *testing.T) {
	for _, c := range []struct {
		a    filewire.ReadFile
		size int64
		fits bool
	}{
		{filewire.ReadFile{}, 10, true}, {filewire.ReadFile{}, 11, false},
		{filewire.ReadFile{Offset: 1}, 11, true}, {filewire.ReadFile{Length: 1}, 99, true},
	} {
		var got bytes.Buffer
		_, err := io.WriteString(bounded(c.a, 10, to(&got))(filewire.Answer{Size: c.size}), "x")
		if (err == nil) != c.fits || err != nil && !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%+v of %d bytes: %v", c.a, c.size, err)
		}
	}
}

// TestShare: the content passes from one tool to the other, counted and hashed here. A side that
// fails ends the other, and its error is the call's.
func TestShare(t *testing.T) {
	c, mem, id := open(t, nil)
	ctx := operator(t)
	other := newChat(t, mem, "b")
	long := strings.Repeat("0123456789abcdef", 1<<16)
	mem.Put(id, "f", long)
	got, err := c.Share(ctx, id, chat.Share{To: other, Path: "f"})
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(long)))
	if err != nil || got.SHA256 != sum || got.Bytes != 1<<20 ||
		!strings.HasSuffix(got.ToPath, "/f") || got.Path == got.ToPath {
		t.Errorf("%+v, %v", got, err)
	}
	var b bytes.Buffer
	_, err = c.ReadFile(ctx, other, filewire.ReadFile{Path: "f", Stream: true}, to(&b))
	if err != nil || b.String() != long {
		t.Errorf("there are %d bytes, %v", b.Len(), err)
	}
	_, err = c.Share(ctx, id, chat.Share{To: other, Path: "nothing"})
	expect.True(t, errors.Is(err, chat.ErrNotFound), "a file that is not there: %v", err)
	mem.Rule(func(op filewire.Op, name string) *filewire.Denial {
		if op == filewire.Write {
			return &filewire.Denial{Op: op, Path: name, Rule: "no"}
		}
		return nil
	})
	if _, err := c.Share(ctx, id, chat.Share{To: other, Path: "f"}); err == nil {
		t.Error("what may not be written was")
	}
}

// late is content whose reading fails, a moment after the caller's context has ended: as net/http
// ends the context of a request whose body it cannot read.
type late struct {
	cancel context.CancelFunc
	err    error
}

func (l late) Read([]byte) (int, error) {
	l.cancel()
	time.Sleep(50 * time.Millisecond)
	return 0, l.err
}

// TestLateContent: why content could not be read is the error of its call, also when the end of the
// caller's context is heard of first.
func TestLateContent(t *testing.T) {
	c, _, id := open(t, nil)
	ctx, cancel := context.WithCancel(operator(t))
	own := errors.New("nothing came")
	write := filewire.WriteFile{Path: "f", Stream: true}
	_, err := c.WriteFile(ctx, id, write, late{cancel, own})
	var body *filewire.BodyError
	expect.True(t, errors.Is(err, own) && errors.As(err, &body), "%v, want %v", err, own)
	_, err = c.WriteFile(operator(t), id, write, late{func() {}, own})
	expect.True(t, errors.Is(err, own) && errors.As(err, &body), "%v, want %v", err, own)
}
