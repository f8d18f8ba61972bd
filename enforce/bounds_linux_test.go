package enforce

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBounds: what cannot be looked through in bounds is not kept half, but refused.
func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		bound *int
		make  func(t *testing.T, home string)
		want  string
	}{
		"names": {&maxWalk, func(t *testing.T, home string) {
			for i := range 100 {
				must(t, os.WriteFile(filepath.Join(home, fmt.Sprint(i)), nil, 0o644))
			}
		}, "more than 50 files to look through"},
		"depth": {&maxDepth, func(t *testing.T, home string) {
			must(t, os.MkdirAll(filepath.Join(home, strings.Repeat("d/", 100)), 0o755))
		}, "deeper than 50"},
		"mounts": {&maxMounts, func(t *testing.T, home string) {
			for i := range 100 {
				must(t, os.WriteFile(filepath.Join(home, fmt.Sprintf("%d.env", i)), nil, 0o644))
			}
		}, "want at most 50"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newInside(t, false, false)
			tt.make(t, s.home) // before, for what is made later is looked at when it comes
			_, err := s.hold("access: {deny: ['*.env']}")
			must(t, err)
			old := *tt.bound
			*tt.bound = 50
			defer func() { *tt.bound = old }()
			if _, err := s.hold("access: {deny: ['*.env', more]}"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("beyond the bound: %v, want %q", err, tt.want)
			}
			if got := s.try(t, []string{filepath.Join(s.home, "0.env")}); name == "mounts" && got[0].Read {
				t.Error("after rules that could not be kept the old ones are gone")
			}
		})
	}
}
