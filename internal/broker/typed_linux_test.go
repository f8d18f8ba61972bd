package broker

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
)

// unrenderedRoot answers an input with output for the front to render.
type unrenderedRoot struct{ verbs.Root }

func (unrenderedRoot) InputWait(context.Context, chat.ID, chat.Input) (chat.Typed, error) {
	t := chat.Typed{Until: chat.UntilPrompt, Output: &chat.Span{From: 7, To: 9}}
	t.From = 5
	t.SetBytes([]byte("\xff"))
	return t, nil
}

// TestOutputCrosses: the front learns the position of a command's output, and its callers do not.
func TestOutputCrosses(t *testing.T) {
	d := serveRoot(t, unrenderedRoot{})
	in := chat.Input{Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt}}
	got, err := d.InputWait(operator(t), "0123456789abcdef", in)
	if err != nil || got.Output == nil || *got.Output != (chat.Span{From: 7, To: 9}) ||
		got.From != 5 || string(got.Bytes()) != "\xff" {
		t.Errorf("%+v, %v", got, err)
	}
	b, err := json.Marshal(got)
	expect.True(t, err == nil && !strings.Contains(strings.ToLower(string(b)), "output"),
		"a caller gets %s, %v", b, err)
	expect.NoError(t, d.end(t))
}
