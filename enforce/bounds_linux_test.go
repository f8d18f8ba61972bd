package enforce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestBeyondBounds: rules that cannot be kept in bounds are not kept half, but refused, and those
// before them stay.
func TestBeyondBounds(t *testing.T) {
	s := newInside(t, false, false)
	env := filepath.Join(s.home, "0.env")
	must.Do(t, os.WriteFile(env, nil, 0o644))
	_, err := s.hold("access: {deny: ['*.env']}")
	must.Do(t, err)
	must.Do(t, os.MkdirAll(filepath.Join(s.home, strings.Repeat("d/", 1001)), 0o755))
	_, err = s.hold("access: {deny: [more]}")
	expect.True(t, err != nil && strings.Contains(err.Error(), "deeper than 1000"),
		"beyond the bound: %v", err)
	if got := s.try(t, []string{env}); got[0].Read {
		t.Error("after rules that could not be kept the old ones are gone")
	}
}
