package main

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestLimitWords: a bound on the size of a file is shown where there is one.
func TestLimitWords(t *testing.T) {
	l := chat.DefaultLimits()
	if words := limitWords(l); strings.Contains(words, "file") {
		t.Errorf("no bound: %s", words)
	}
	l.FSize = 1 << 20
	if words := limitWords(l); !strings.HasSuffix(words, ", file 1.0MiB") {
		t.Errorf("a bound: %s", words)
	}
}
