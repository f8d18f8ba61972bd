package uplink

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// ends returns two connected ends, of which the first answers with handle.
func ends(t *testing.T, handle Handler) (asking *Conn, served chan error) {
	t.Helper()
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	asking, err = New(a)
	if err != nil {
		t.Fatal(err)
	}
	answering, err := New(b)
	if err != nil {
		t.Fatal(err)
	}
	served = make(chan error, 2)
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { served <- answering.Serve(ctx, handle) })
	both.Go(func() { _ = asking.Serve(ctx, refuse) })
	t.Cleanup(func() { cancel(); both.Wait() })
	return asking, served
}

func refuse(context.Context, Call, []*os.File) ([]*os.File, Answer) {
	return nil, Answer{Error: "no"}
}

func TestCallPassesFilesBothWays(t *testing.T) {
	c, _ := ends(t, func(_ context.Context, call Call, files []*os.File) ([]*os.File, Answer) {
		if call.Verb != Open || call.Chat != "aaaaaaaaaaaaaaaa" || len(files) != 2 {
			return files, Answer{Error: "wrong"}
		}
		return files[:1], Answer{}
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	_, files, err := c.Call(t.Context(), Call{Verb: Open, Chat: "aaaaaaaaaaaaaaaa"}, w, r)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if _, err := files[0].WriteString("over"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(files[0].Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "over" {
		t.Error(string(got), err)
	}
}

func TestCallsAtOnceGetTheirOwnAnswers(t *testing.T) {
	c, _ := ends(t, func(_ context.Context, call Call, _ []*os.File) ([]*os.File, Answer) {
		return nil, Answer{Error: "this is " + string(call.Chat)}
	})
	var all sync.WaitGroup
	for _, id := range strings.Fields("a b c d e f g h") {
		all.Go(func() {
			for range 50 {
				if a, _, err := c.Call(t.Context(), Call{Chat: chat.ID("x" + id)}); err == nil ||
					a.Error != "this is x"+id {
					t.Error(a, err)
				}
			}
		})
	}
	all.Wait()
}

func TestCallAfterTheEnd(t *testing.T) {
	asked := make(chan *Conn, 1)
	gone := make(chan struct{})
	c, _ := ends(t, func(context.Context, Call, []*os.File) ([]*os.File, Answer) {
		_ = (<-asked).Close() // while the caller waits
		close(gone)
		return nil, Answer{}
	})
	asked <- c
	if _, _, err := c.Call(t.Context(), Call{Verb: Close}); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	<-gone
	if _, _, err := c.Call(t.Context(), Call{Verb: Close}); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

func TestGivenUpCall(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	release := make(chan struct{})
	c, _ := ends(t, func(_ context.Context, call Call, _ []*os.File) ([]*os.File, Answer) {
		if call.Verb == Close {
			return nil, Answer{}
		}
		<-release
		return []*os.File{w}, Answer{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Call(ctx, Call{Verb: Open}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	// The file of the late answer is closed: the pipe ends.
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Call(t.Context(), Call{Verb: Close}); err != nil {
		t.Error(err)
	}
}

func TestServeRefuses(t *testing.T) {
	for name, message := range map[string]string{
		"nothing":          `{}`,
		"both":             `{"id":1,"call":{"verb":"open"},"answer":{}}`,
		"unknown key":      `{"id":1,"call":{"verb":"open","root":true}}`,
		"no JSON":          `hello`,
		"two":              `{"id":1,"call":{"verb":"open"}} {}`,
		"wrong id":         `{"id":1,"call":{"verb":"open","chat":7}}`,
		"unasked answer":   `{"id":1,"answer":{}}`,
		"answer to naught": `{"id":0,"answer":{}}`,
		"too large":        `{"id":1,"call":{"verb":"` + strings.Repeat("x", maxPacket) + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c, served := ends(t, func(context.Context, Call, []*os.File) ([]*os.File, Answer) {
				t.Error("it was answered")
				return nil, Answer{}
			})
			err := c.raw.Control(func(fd uintptr) {
				if err := unix.Sendmsg(int(fd), []byte(message), nil, nil, 0); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := <-served; err == nil {
				t.Error("it was taken")
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":1,"call":{"verb":"reply","local":"192.0.2.1:53","remote":"[fd00::1]:4000"}}`))
	f.Add([]byte(`{"id":1,"call":{"verb":"change","allow":["*.example.org:443","udp:192.0.2.0/24:1-2"]}}`))
	f.Add([]byte(`{"id":18446744073709551615,"answer":{"chats":["a"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decode(b)
		if err == nil && (p.Call == nil) == (p.Answer == nil) {
			t.Errorf("%q: %+v", b, p)
		}
	})
}
