package main

import (
	"bytes"
	"testing"
)

// TestEscapingInPieces: wherever content is cut, it comes out as if it were not.
func TestEscapingInPieces(t *testing.T) {
	text := "a\x1b[31mé🦀\u202e\xff\xf0\x9f\x80x\xe2\x82"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := &escaping{w: &out}
		for at := 0; at < len(text); at += size {
			if _, err := w.Write([]byte(text[at:min(at+size, len(text))])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil || out.String() != escape(text) {
			t.Errorf("in pieces of %d: %q, want %q", size, out.String(), escape(text))
		}
	}
}
