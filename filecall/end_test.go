package filecall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/session"
)

// TestBelievable: a tool may report the kernel's denials and its own, but no rule of chatd's.
func TestBelievable(t *testing.T) {
	for rule, layer := range map[string]string{
		files.RuleKernel:    files.RuleKernel,
		files.RuleWorkspace: "files", files.RuleHardLink: "files",
		"deny read /etc/**": "", "": "",
	} {
		c := &Call{Tool: files.WriteFileTool, Op: files.Write}
		d := &files.Denial{Rule: rule, Tool: files.ReadFileTool, Op: files.Read, Layer: "landlock"}
		err := c.believable(&files.Failure{Denial: d})
		var f *files.Failure
		if believed := errors.As(err, &f); believed != (layer != "") {
			t.Errorf("rule %q: %v", rule, err)
		}
		if layer != "" && (d.Layer != layer || d.Tool != c.Tool || d.Op != c.Op) {
			t.Errorf("rule %q: %+v", rule, d)
		}
	}
}

// TestAnswered: a tool whose content cannot be read has not answered, even where the reason is
// another tool's answer: it still has to take back what it began.
func TestAnswered(t *testing.T) {
	denial := &files.Failure{Denial: &files.Denial{Rule: "deny read .env"}}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{denial, true},
		{fmt.Errorf("no: %w", denial), true},
		{&files.BodyError{Err: denial}, false},
		{errors.Join(&files.BodyError{Err: denial}, io.ErrUnexpectedEOF), false},
		{io.ErrUnexpectedEOF, false},
	} {
		if got := Answered(test.err); got != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
	other := &files.BodyError{Err: denial}
	if got := (&Call{Tool: files.WriteFileTool}).believable(other); got != error(other) {
		t.Errorf("another tool's denial became %v", got)
	}
}

// TestOvertaken: an answer, a denial and a caller's content stand; another error gives way to the
// end of the call's context, then to that of its session.
func TestOvertaken(t *testing.T) {
	gone := errors.New("the caller went away")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	slept := errors.New("the session ended")
	sleeps, lives := func() error { return slept }, func() error { return nil }
	for _, test := range []struct {
		ctx   context.Context
		err   error
		ended func() error
		want  error
	}{
		{over, nil, sleeps, nil},
		{over, &files.Failure{}, sleeps, nil},
		{over, fmt.Errorf("no: %w", &files.Denial{}), sleeps, nil},
		{over, &files.BodyError{Err: io.EOF}, sleeps, nil},
		{over, unix.EPIPE, lives, gone},
		{over, fmt.Errorf("cannot wait: %w", gone), sleeps, nil},
		{t.Context(), unix.EPIPE, sleeps, slept},
		{t.Context(), unix.EPIPE, lives, nil},
	} {
		if got := Overtaken(test.ctx, test.err, test.ended); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// TestReason: the reason for a call without an answer depends on the report of chatd-shim.
func TestReason(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context
		err    error
		report string
		words  string
		kind   error
	}{
		"answer":       {over, &files.Failure{}, "", "", nil},
		"over":         {over, unix.EPIPE, "{}", "finish the file tool: context canceled", nil},
		"no report":    {t.Context(), unix.EPIPE, "", "cannot start the file tool", chat.ErrBusy},
		"not confined": {t.Context(), io.EOF, `{"error":"no"}`, "tool: no", session.ErrNotConfined},
		"no answer":    {t.Context(), io.ErrUnexpectedEOF, "{}", "without an answer", chat.ErrBusy},
		"other":        {t.Context(), errors.New("too much"), "{}", "too much", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := w.WriteString(test.report); err != nil {
				t.Fatal(err)
			}
			w.Close()
			p := &Process{files: &session.Files{Report: r}}
			got := p.Reason(test.ctx, test.err)
			if !strings.Contains(got.Error(), test.words) {
				t.Errorf("%v, want %q", got, test.words)
			}
			if test.kind != nil && !errors.Is(got, test.kind) {
				t.Errorf("%v is no %v", got, test.kind)
			}
		})
	}
}
