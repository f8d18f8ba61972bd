package plan

import (
	"bytes"
	"testing"
)

// TestReadEnd: an incomplete end counts as missing.
func TestReadEnd(t *testing.T) {
	for text, want := range map[string]bool{"": false, `{"status":9`: false, `{"status":9}`: false, `{"status":9,"at":"2026-01-02T03:04:05Z"}`: true} {
		if _, ok := ReadSupervisorEnd(bytes.NewReader([]byte(text))); ok != want {
			t.Errorf("%q: %t", text, ok)
		}
	}
}
