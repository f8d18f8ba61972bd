package runs

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
)

// flood are runs that print more than is kept, and wait for each other's end.
type flood struct {
	verbs.Streams
	printed chan struct{}
	end     chan struct{}
	bytes   int // that each prints
}

func (f flood) Run(
	_ context.Context, _ chat.ID, _ chat.RunSpec, begun verbs.Begun,
) (chat.RunResult, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return chat.RunResult{}, err
	}
	none, nothing, err := os.Pipe()
	if err != nil {
		return chat.RunResult{}, err
	}
	begun("run-1", r, none)
	_, err = io.WriteString(w, strings.Repeat("x", f.bytes))
	f.printed <- struct{}{}
	<-f.end
	return chat.RunResult{}, errors.Join(err, w.Close(), nothing.Close())
}

// TestOutputIsBounded: of a run no more than its output_max is kept, of all runs of a caller no
// more than is one caller's, and one more is refused; another caller has its own bound.
func TestOutputIsBounded(t *testing.T) {
	f := flood{printed: make(chan struct{}, 100), end: make(chan struct{}), bytes: 3 << 20}
	s, each := NewStreams(f), maxOutputEach
	if testing.Short() { // an eighth of everything
		f.bytes, each = f.bytes/8, each/8
		s = &Streams{f, stream.NewRoom(maxOutput/8, int64(each))}
	}
	as := func(name string) context.Context {
		return chat.WithCaller(t.Context(), chat.Caller{Name: name, Role: chat.RoleBridge})
	}
	const many = 40
	results := make(chan chat.RunResult, many+1)
	run := func(name string) {
		res, err := s.Run(as(name), "a", chat.RunSpec{Command: "x", OutputMax: chat.MaxOutputMax})
		expect.NoError(t, err)
		results <- res
	}
	for range many { // of which each wants 3 MiB: more than 96 in all
		go run("ada")
	}
	for range many {
		<-f.printed
	}
	expect.Is(t, expect.Err(s.Run(as("ada"), "a", chat.RunSpec{Command: "x"})), chat.ErrBusy,
		"one more is not refused")
	go run("bob")
	<-f.printed
	close(f.end)
	kept, cut := 0, 0
	for range many + 1 {
		res := <-results
		expect.True(t, res.StdoutBytes == int64(f.bytes) && res.Truncated == (len(res.Stdout) < f.bytes),
			"%d bytes are counted, %d kept, truncated %t", res.StdoutBytes, len(res.Stdout), res.Truncated)
		if kept += len(res.Stdout); res.Truncated {
			cut++
		}
	}
	maxStored := each + f.bytes + many*100
	expect.True(t, kept <= maxStored && kept >= maxStored/2 && cut != 0 && cut != many+1,
		"%d bytes are kept, want at most %d; %d of %d are cut", kept, maxStored, cut, many+1)
	if _, err := s.Run(as("ada"), "a", chat.RunSpec{Command: "x"}); err != nil {
		t.Errorf("after all have ended: %v", err)
	}
}
