package uplink

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// ends returns two connected ends, of which the first answers with handle.
func ends(t *testing.T, handle Handler) (asking *Conn, served chan error) {
	t.Helper()
	a, b, err := socketPair()
	must.Do(t, err)
	asking = must.Get(New(a))(t)
	answering := must.Get(New(b))(t)
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
	must.Do(t, err)
	defer r.Close()
	defer w.Close()
	_, files, err := c.Call(t.Context(), Call{Verb: Open, Chat: "aaaaaaaaaaaaaaaa"}, w, r)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	must.Do(t, expect.Err(files[0].WriteString("over")))
	must.Do(t, errors.Join(files[0].Close(), w.Close()))
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
	must.Do(t, err)
	defer r.Close()
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := ends(t, func(_ context.Context, call Call, _ []*os.File) ([]*os.File, Answer) {
		if call.Verb == Close {
			return nil, Answer{}
		}
		cancel()
		<-release
		return []*os.File{w}, Answer{}
	})
	if _, _, err := c.Call(ctx, Call{Verb: Open}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	// The file of the late answer is closed: the pipe ends.
	expect.NoError(t, expect.Err(io.ReadAll(r)))
	expect.NoError(t, expect.Err(c.Call(t.Context(), Call{Verb: Close})))
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
			must.Do(t, c.raw.Control(func(fd uintptr) {
				expect.NoError(t, unix.Sendmsg(int(fd), []byte(message), nil, nil, 0))
			}))
			err := <-served
			expect.True(t, err != nil, "it was taken")
		})
	}
}

// half returns an end, and the socket of the other, which nobody reads.
func half(t *testing.T) (*Conn, *os.File) {
	t.Helper()
	a, b, err := socketPair()
	must.Do(t, err)
	t.Cleanup(func() { _ = b.Close() })
	c := must.Get(New(a))(t)
	return c, b
}

// TestUnreadCalls: who never reads keeps no caller longer than it wants to wait.
func TestUnreadCalls(t *testing.T) {
	c, _ := half(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all, served sync.WaitGroup
	served.Go(func() { _ = c.Serve(t.Context(), refuse) })
	for range 2 * maxCalls {
		all.Go(func() {
			if _, _, err := c.Call(ctx, large); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for len(c.sending) == 0 || len(c.calls) < maxCalls {
		runtime.Gosched()
	}
	cancel()
	all.Wait()
	expect.NoError(t, c.Close())
	served.Wait()
}

// large is a call of which few have room in a socket that nobody reads.
var large = Call{Verb: Verb(strings.Repeat("x", 16<<10))}

// TestUnreadAnswers: who asks and does not read the answers is given up.
func TestUnreadAnswers(t *testing.T) {
	c, b := half(t)
	c.answerTimeout = time.Millisecond
	asked := make(chan error, 1)
	go func() {
		for { // until it is given up
			if _, err := b.WriteString(`{"id":1,"call":{"verb":"open"}}`); err != nil {
				asked <- err
				return
			}
		}
	}()
	expect.NoError(t, c.Serve(t.Context(), func(context.Context, Call, []*os.File) ([]*os.File, Answer) {
		return nil, Answer{Error: strings.Repeat("x", 16<<10)}
	}))
	if err := <-asked; !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
}

// TestBothEndsAskMuch: neither end waits for room in the other while that waits for its own.
func TestBothEndsAskMuch(t *testing.T) {
	a, b, err := socketPair()
	must.Do(t, err)
	var served, asked sync.WaitGroup
	defer served.Wait()
	for _, socket := range []*os.File{a, b} {
		c := must.Get(New(socket))(t)
		defer c.Close()
		c.answerTimeout = time.Hour
		served.Go(func() { _ = c.Serve(context.Background(), refuse) })
		for range 8 * maxCalls {
			asked.Go(func() {
				if a, _, err := c.Call(t.Context(), Call{Verb: Close}); a.Error != "no" {
					t.Error(err)
				}
			})
		}
	}
	asked.Wait()
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":1,"call":{"verb":"reply","local":"192.0.2.1:53","remote":"[fd00::1]:4000"}}`))
	f.Add([]byte(`{"id":1,"call":{"verb":"change","allow":["*.example.org:443","udp:192.0.2.0/24:1-2"]}}`))
	f.Add([]byte(`{"id":18446744073709551615,"answer":{"chats":["a"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decode(b)
		expect.True(t, err != nil || (p.Call == nil) != (p.Answer == nil), "%q: %+v", b, p)
	})
}

// socketPair returns the two ends of a connection.
func socketPair() (a, b *os.File, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return os.NewFile(uintptr(p[0]), "uplink"), os.NewFile(uintptr(p[1]), "uplink"), err
}
