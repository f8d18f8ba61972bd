package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestReadAnswer: one line is the answer, also without its end; Ctrl-C ends a read that waits.
func TestReadAnswer(t *testing.T) {
	for in, want := range map[string]string{"y\nmore": "y", " Yes \r\n": "yes", "n": "n", "": ""} {
		if got, err := readAnswer(t.Context(), strings.NewReader(in)); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	waits, _ := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readAnswer(ctx, waits); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
