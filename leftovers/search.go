package leftovers

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/sys"
)

// MaxLooks bounds the files that one search examines in its directories.
const MaxLooks = 20000

// Search calls found once for each file of the uid in the directories, which may lie in each
// other, and at the top of the host's /tmp and /var/tmp. It reports whether it saw all: MaxLooks
// may have ended it.
func Search(uid uint32, dirs []string, found func(path string)) (all bool) {
	looks := MaxLooks
	seen := map[string]bool{}
	record := func(path string, d fs.DirEntry) {
		fi, err := d.Info()
		if err != nil {
			return // removed meanwhile
		}
		if u, _ := sys.OwnerOf(fi); u == uid && !seen[path] {
			seen[path] = true
			found(path)
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		entries, _ := os.ReadDir(dir) // a directory that does not exist holds no file
		for _, e := range entries {
			record(filepath.Join(dir, e.Name()), e)
		}
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read is not named
			if looks--; looks < 0 {
				return fs.SkipAll
			}
			if err == nil {
				record(path, d)
			}
			return nil
		})
	}
	return looks >= 0
}
