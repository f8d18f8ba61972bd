package chat

import (
	"errors"
	"fmt"
	"testing"
)

// TestErrorText: each line states its kind once, however deep the error is wrapped.
func TestErrorText(t *testing.T) {
	twice := fmt.Errorf("cannot do a: %w: %w", fmt.Errorf("cannot do b: %w", ErrInvalid), ErrInvalid)
	for _, c := range []struct {
		err          error
		text, reason string
	}{
		{ErrBusy, "busy", "busy"},
		{fmt.Errorf("x: %w", ErrNotFound), "x: not found", "x"},
		{twice, "cannot do a: cannot do b: invalid", "cannot do a: cannot do b"},
		{fmt.Errorf("y: %w: %w", twice, ErrInvalid), "y: cannot do a: cannot do b: invalid", "y: cannot do a: cannot do b"},
		{errors.Join(twice, fmt.Errorf("z: %w", ErrDenied)), "cannot do a: cannot do b: invalid\nz: denied", "cannot do a: cannot do b: invalid\nz"},
		{errors.New("plain: text"), "plain: text", "plain: text"},
	} {
		if text, reason := ErrorText(c.err), ErrorReason(c.err); text != c.text || reason != c.reason {
			t.Errorf("%v\n got %q, %q", c.err, text, reason)
		}
	}
}

// TestExitCodes: scripts go by the code of each kind; another error is 1.
func TestExitCodes(t *testing.T) {
	want := map[error]int{
		ErrInvalid: 2, ErrDenied: 3, ErrNotFound: 4, ErrExists: 5, ErrWrongPhase: 6, ErrConflict: 7,
		ErrUnsupported: 69, ErrBusy: 75, nil: 0, errors.New("other"): 1,
	}
	for kind, code := range want {
		err := kind
		if kind != nil {
			err = fmt.Errorf("cannot do it: %w", kind)
		}
		if got := ExitCode(err); got != code {
			t.Errorf("%v: exit %d, want %d", err, got, code)
		}
	}
	for _, kind := range Kinds() {
		if want[kind] == 0 {
			t.Errorf("%v has no code of its own", kind)
		}
	}
}
