package main

import (
	"io"
	"strings"
	"testing"
)

// TestDetaching: keys go on up to Ctrl-\, which lets go; who may only look sends none.
func TestDetaching(t *testing.T) {
	for _, silent := range []bool{false, true} {
		ended := false
		d := &detaching{in: strings.NewReader("ls\x03\x1cmore"), silent: silent, end: func() { ended = true }}
		got, err := io.ReadAll(d)
		want := "ls\x03"
		if silent {
			want = ""
		}
		if err != nil || string(got) != want || !ended || !d.left.Load() {
			t.Errorf("silent %v: %q, %v, let go: %v", silent, got, err, ended)
		}
	}
}
