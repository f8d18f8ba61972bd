package roottest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/chatd/chatd/chat"
)

// endingBody is the body of a request whose context ends when it is closed, as that of net/http
// does.
type endingBody struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b endingBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

// TestInputOfARunThatEnds: a caller that still has input for a run that ends is told that the run
// has ended, and not that the caller left, which chatd run would print.
func TestInputOfARunThatEnds(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "ends first", "default")
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "sleep 0.5", OpenStdin: true})
	ctx, end := context.WithCancel(operator(t.Context()))
	defer end()
	body, keepsOpen := io.Pipe()
	defer keepsOpen.Close()
	if err := m.WriteStdin(ctx, c.ID, r.ID, endingBody{body, end}, true); !errors.Is(err, chat.ErrWrongPhase) {
		t.Errorf("%v, want wrong phase", err)
	}
}
