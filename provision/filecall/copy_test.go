package filecall

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// copies does a copy from a chat to another, where each call begins, speaks and ends with the
// error of its side.
func copies(t *testing.T, from, to chat.ID, readErr, writeErr error) (order []string, err error) {
	t.Helper()
	talk := func(context.Context, filewire.LiveTool) (filewire.Answer, error) {
		return filewire.Answer{Bytes: 7}, nil
	}
	c := NewCopy(from, chat.Share{Path: "a", To: to}, talk)
	must.True(t, c.Read.Op == filewire.Read && c.Write.Writes() && c.Write.Path == "a",
		"the calls are %+v and %+v", c.Read, c.Write)
	a, err := c.Do(t.Context(), func(ctx context.Context, call *Call) (filewire.Answer, error) {
		side, sideErr := "read", readErr
		if call == c.Write {
			side, sideErr = "write", writeErr
		}
		order = append(order, side)
		a, err := call.talk(ctx, filewire.LiveTool{})
		if sideErr == nil && readErr != writeErr {
			<-ctx.Done() // the other fails
			return a, context.Cause(ctx)
		}
		return a, errors.Join(sideErr, err)
	})
	expect.True(t, a.Bytes == 7, "copied %+v, want what the talk said", a)
	return order, err
}

// TestCopyOrder: the call of the lower id is the outer one, whichever way the file goes: two
// crosswise copies take the locks of their chats in one order.
func TestCopyOrder(t *testing.T) {
	for _, test := range []struct {
		from, to chat.ID
		first    string
	}{{"a", "b", "read"}, {"b", "a", "write"}} {
		order, err := copies(t, test.from, test.to, nil, nil)
		expect.True(t, err == nil && len(order) == 2 && slices.Index(order, test.first) == 0,
			"from %s to %s: %v, %v", test.from, test.to, order, err)
	}
}

// TestCopyFails: the error is that of the side that failed, and the other ends.
func TestCopyFails(t *testing.T) {
	for want, sides := range map[string][2]error{
		"cannot read from chat a: unreadable": {errors.New("unreadable"), nil},
		"cannot write to chat b: full":        {nil, errors.New("full")},
		"cannot write to chat b: shut":        {&filewire.BodyError{Err: io.EOF}, errors.New("shut")},
	} {
		for _, to := range []chat.ID{"b", "0"} {
			want := strings.Replace(want, "chat b", "chat "+string(to), 1)
			_, err := copies(t, "a", to, sides[0], sides[1])
			expect.True(t, err != nil && err.Error() == want, "%v, want %s", err, want)
		}
	}
}
