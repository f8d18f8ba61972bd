package filecall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
)

// TestBelievable: a tool may report the kernel's denials and its own, and rules that there are.
func TestBelievable(t *testing.T) {
	for rule, layer := range map[string]string{
		filewire.RuleKernel:    filewire.RuleKernel,
		filewire.RuleWorkspace: "files", filewire.RuleHardLink: "files",
		"deny read /etc/**": "", "": "",
	} {
		c := &Call{Tool: filewire.WriteFileTool, Op: filewire.Write}
		d := &filewire.Denial{Rule: rule, Tool: filewire.ReadFileTool, Op: filewire.Read, Layer: "landlock"}
		err := c.believable(&filewire.Failure{Denial: d})
		var f *filewire.Failure
		believed := errors.As(err, &f)
		expect.True(t, believed == (layer != ""), "rule %q: %v", rule, err)
		expect.True(t, layer == "" || d.Layer == layer && d.Tool == c.Tool && d.Op == c.Op,
			"rule %q: %+v", rule, d)
	}
}

// TestAnswered: a tool whose content cannot be read has not answered, even where the reason is
// another tool's answer: it still has to take back what it began.
func TestAnswered(t *testing.T) {
	denial := &filewire.Failure{Denial: &filewire.Denial{Rule: "deny read .env"}}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{denial, true},
		{fmt.Errorf("no: %w", denial), true},
		{&filewire.BodyError{Err: denial}, false},
		{errors.Join(&filewire.BodyError{Err: denial}, io.ErrUnexpectedEOF), false},
		{io.ErrUnexpectedEOF, false},
	} {
		expect.Equal(t, Answered(test.err), test.want, "%v", test.err)
	}
	other := &filewire.BodyError{Err: denial}
	expect.Equal(t, (&Call{Tool: filewire.WriteFileTool}).believable(other), error(other),
		"another tool's denial became")
}

// TestReason: a call without an answer says why, and an answer is its own reason.
func TestReason(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx   context.Context
		err   error
		words string
		kind  error
	}{
		"answer":    {over, &filewire.Failure{}, "", nil},
		"over":      {over, unix.EPIPE, "finish the file tool: context canceled", nil},
		"no answer": {t.Context(), io.ErrUnexpectedEOF, "without an answer", chat.ErrBusy},
		"other":     {t.Context(), errors.New("too much"), "too much", nil},
	} {
		got := (&Process{}).Reason(test.ctx, test.err)
		expect.True(t, strings.Contains(got.Error(), test.words), "%s: %v, want %q", name, got, test.words)
		expect.True(t, test.kind == nil || errors.Is(got, test.kind), "%s: %v is no %v", name, got, test.kind)
	}
}
