package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

// TestFirstLine: Ctrl-C is an answer to a question that nobody answers, and is not a yes.
func TestFirstLine(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	interrupt()
	if line := firstLine(ctx, r); line != "" {
		t.Errorf("Ctrl-C is %q", line)
	}
	for in, want := range map[string]string{"Y\n": "y", " yes \nno\n": "yes", "": "", "y": "y", "\n": ""} {
		if line := firstLine(t.Context(), strings.NewReader(in)); line != want {
			t.Errorf("%q is %q", in, line)
		}
	}
}
