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
