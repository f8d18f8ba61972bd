package api

import (
	"testing"

	"github.com/chatd/chatd/internal/verbs"
)

// TestWritten: a handler that is written by hand is that of a row. A row without a handler panics.
func TestWritten(t *testing.T) {
	for name := range written {
		if _, ok := verbs.Find(name); !ok {
			t.Errorf("no row has the name %s", name)
		}
	}
}
