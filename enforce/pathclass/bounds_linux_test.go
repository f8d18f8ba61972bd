package pathclass

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// TestBounds: what cannot be looked through in bounds is refused, and what can is not.
func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		bound *int
		max   int
		make  func(dir string, n int) error
		want  string
	}{
		"names": {&maxWalk, 50, func(dir string, n int) error {
			var err error
			for i := 0; i < n && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644)
			}
			return err
		}, "more than 50 files to look through"},
		"depth": {&maxDepth, 50, func(dir string, n int) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", n)), 0o755)
		}, "deeper than 50"},
		"mounts": {&maxMounts, 50, func(dir string, n int) error {
			var err error
			for i := 0; i < n && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.env", i)), nil, 0o644)
			}
			return err
		}, "want at most 50"},
	} {
		t.Run(name, func(t *testing.T) {
			old := *tt.bound
			*tt.bound = tt.max
			defer func() { *tt.bound = old }()
			for n, refused := range map[int]bool{tt.max: false, tt.max + 1: true} {
				dir := t.TempDir()
				must.Do(t, tt.make(dir, n))
				bases, err := openTrees([]Tree{{dir, dir}})
				must.Do(t, err)
				defer bases[0].Close()
				wall := wallFor(t, "access: {useDefaults: false, deny: ['*.env']}")
				w := Walker{Wall: wall, Cache: &Cache{}, partial: os.Geteuid() != 0}
				err = w.walk(bases)
				if refused != (err != nil) || refused && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%d: %v, want %q: %t", n, err, tt.want, refused)
				}
			}
		})
	}
}
