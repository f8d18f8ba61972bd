package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// printing is chatd-root with runs that print.
type printing struct {
	*apitest.Memory
	prints func(ctx context.Context, stdout, stderr *os.File) error
}

func (p printing) Run(
	ctx context.Context, _ chat.ID, _ chat.RunSpec, begun verbs.Begun,
) (chat.RunResult, error) {
	outR, outW, err := os.Pipe()
	if err != nil {
		return chat.RunResult{}, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return chat.RunResult{}, err
	}
	begun("run-7", outR, errR)
	err = p.prints(ctx, outW, errW)
	return chat.RunResult{Exit: 3}, errors.Join(err, outW.Close(), errW.Close())
}

// serveRuns serves runs that print.
func serveRuns(t *testing.T, prints func(ctx context.Context, stdout, stderr *os.File) error) *rootEnd {
	mem := apitest.New()
	return serveRoot(t, printing{mem, prints})
}

// TestStreamsCross: the front reads the output from the run's own pipes; chatd-root keeps none of
// them open, and no byte of it is in a packet.
func TestStreamsCross(t *testing.T) {
	fds, routines := held(t)
	const text = "some output, "
	d := serveRuns(t, func(_ context.Context, stdout, stderr *os.File) error {
		_, err := stdout.WriteString(strings.Repeat(text, 100_000))
		_, serr := stderr.WriteString("and an error")
		return errors.Join(err, serr)
	})
	var run string
	got := make(chan string, 2)
	res, err := d.Client.Run(operator(t), "0123456789abcdef", chat.RunSpec{Command: "x"},
		func(name string, stdout, stderr *os.File) {
			run = name
			for _, f := range []*os.File{stdout, stderr} {
				if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("a descriptor would be inherited: %v", err)
				}
				go func() {
					b, err := io.ReadAll(f)
					got <- fmt.Sprint(string(b), errors.Join(err, f.Close()))
				}()
			}
		})
	expect.True(t, err == nil && res.Exit == 3 && run == "run-7",
		"run %q ended with %+v, %v", run, res, err)
	for range 2 {
		b := <-got
		expect.True(t, b == strings.Repeat(text, 100_000)+"<nil>" || b == "and an error<nil>",
			"%d bytes: %.40q", len(b), b)
	}
	expect.NoError(t, d.end(t))
	leaksNothing(t, fds, routines)
}

// TestStreamsOfAFrontThatEnds: the end of the front closes the read ends, so that the next write
// ends the run, and nothing is left open.
func TestStreamsOfAFrontThatEnds(t *testing.T) {
	fds, routines := held(t)
	wrote := make(chan error, 1)
	d := serveRuns(t, func(ctx context.Context, stdout, _ *os.File) error {
		<-ctx.Done()
		var err error
		for range 1000 { // the call's end is visible before its queue is drained
			if _, err = stdout.WriteString("x"); err != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		wrote <- err
		return nil
	})
	l, err := d.open()
	must.Do(t, err)
	m := `{"verb":"run","caller":{"name":"root","role":"operator"},"chat":"0123456789abcdef","args":{"command":"x"}}`
	must.Do(t, l.send(requestEnd, []byte(m)))
	// The packet with the descriptors is in the queue of a socket that closes before it is read.
	var ready []unix.PollFd
	err = l.raw.Control(func(fd uintptr) { ready = []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} })
	must.Do(t, err)
	if n, err := unix.Poll(ready, 60_000); n != 1 || err != nil {
		t.Fatalf("no packet comes: %v", err)
	}
	expect.NoError(t, errors.Join(l.close(), d.end(t)))
	expect.Is(t, <-wrote, unix.EPIPE, "somebody still has the read end")
	leaksNothing(t, fds, routines)
}

// TestHostileStreams: unexpected descriptors, too many, too few, or with the wrong packet, are
// closed; a call that takes descriptors ends with an error.
func TestHostileStreams(t *testing.T) {
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	defer w.Close()
	fd := int(r.Fd())
	takes := func(_ string, fds [2]int) error { return sys.CloseAll(fds[:]) }
	for name, c := range map[string]struct {
		takes func(string, [2]int) error
		kinds []kind
		fds   []int
		fails bool
	}{
		"as it should be":       {takes, []kind{streams}, []int{fd, fd}, false},
		"a call without":        {nil, []kind{streams}, []int{fd, fd}, true},
		"none":                  {takes, []kind{streams}, nil, true},
		"one":                   {takes, []kind{streams}, []int{fd}, true},
		"three":                 {takes, []kind{streams}, []int{fd, fd, fd}, true},
		"a hundred":             {takes, []kind{streams}, make([]int, 100), true},
		"twice":                 {takes, []kind{streams, streams}, []int{fd, fd}, true},
		"with an answer":        {takes, []kind{answerEnd}, []int{fd}, true},
		"with another packet":   {takes, []kind{frame}, []int{fd, fd}, true},
		"of a call without one": {nil, []kind{frame}, []int{fd, fd}, true},
	} {
		t.Run(name, func(t *testing.T) {
			fds, routines := held(t)
			ours, theirs, err := pair()
			must.Do(t, err)
			l, err := newLink(ours)
			other, oerr := newLink(theirs)
			must.Do(t, errors.Join(err, oerr))
			for i := range c.fds {
				c.fds[i] = fd
			}
			for _, k := range c.kinds {
				must.Do(t, other.sendFDs(k, nil, c.fds...))
			}
			must.Do(t, other.send(answerEnd, []byte("{}")))
			must.Do(t, l.hearBy(time.Now().Add(time.Minute)))
			h := hooks{streams: c.takes}
			err = hear(h.receiver(l), nil, func(k kind, _ []byte) error {
				return fmt.Errorf("unwanted %q", k)
			})
			expect.True(t, (err != nil) == c.fails, "it ends with %v", err)
			expect.NoError(t, errors.Join(l.close(), other.close()))
			leaksNothing(t, fds, routines)
		})
	}
}
